package driverconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// old has what driver.Conn demands, and keeps a log.
type old struct {
	log   []string
	ended func() // is called in Prepare and Begin
}

func (c *old) Prepare(query string) (driver.Stmt, error) {
	c.log = append(c.log, "prepare "+query)
	if c.ended != nil {
		c.ended()
	}
	return &oldStmt{c}, nil
}

func (c *old) Close() error { return nil }

func (c *old) Begin() (driver.Tx, error) {
	c.log = append(c.log, "begin")
	if c.ended != nil {
		c.ended()
	}
	return &oldTx{c}, nil
}

type oldTx struct{ c *old }

func (t *oldTx) Commit() error   { return nil }
func (t *oldTx) Rollback() error { t.c.log = append(t.c.log, "rollback"); return nil }

type oldStmt struct{ c *old }

func (s *oldStmt) Close() error  { s.c.log = append(s.c.log, "close"); return nil }
func (s *oldStmt) NumInput() int { return -1 }
func (s *oldStmt) Exec(args []driver.Value) (driver.Result, error) {
	s.c.log = append(s.c.log, "exec")
	return driver.RowsAffected(len(args)), nil
}
func (s *oldStmt) Query([]driver.Value) (driver.Rows, error) {
	s.c.log = append(s.c.log, "query")
	return plainRows{}, nil
}

// skips wants its statements prepared.
type skips struct{ old }

func (c *skips) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return nil, driver.ErrSkip
}

// now is a driver of today: it has a method with a context for everything.
type now struct{ old }

func (c *now) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	c.log = append(c.log, "prepare context "+query)
	return &nowStmt{oldStmt{&c.old}}, nil
}

func (c *now) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.log = append(c.log, "begin tx")
	return &oldTx{&c.old}, nil
}

func (c *now) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.log = append(c.log, "exec context "+query)
	return driver.RowsAffected(len(args)), nil
}

func (c *now) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.log = append(c.log, "query context "+query)
	return plainRows{}, nil
}

func (c *now) Ping(context.Context) error {
	c.log = append(c.log, "ping")
	return errPing
}

var errPing = errors.New("no answer")

type nowStmt struct{ oldStmt }

func (s *nowStmt) ExecContext(_ context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.c.log = append(s.c.log, "stmt exec context")
	return driver.RowsAffected(len(args)), nil
}

func (s *nowStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	s.c.log = append(s.c.log, "stmt query context")
	return plainRows{}, nil
}

// middle is a driver of Go 1.1: it executes and queries directly, and knows no context.
type middle struct{ old }

func (c *middle) Exec(query string, args []driver.Value) (driver.Result, error) {
	c.log = append(c.log, "exec "+query)
	return driver.RowsAffected(len(args)), nil
}

func (c *middle) Query(query string, _ []driver.Value) (driver.Rows, error) {
	c.log = append(c.log, "query "+query)
	return plainRows{}, nil
}

func TestTheNewestMethodThatADriverHasIsCalled(t *testing.T) {
	recent, older, oldest := &now{}, &middle{}, &old{}
	for _, tc := range []struct {
		driver driver.Conn
		log    *[]string
		direct bool // it executes and queries without preparing
		want   []string
		ping   error
	}{
		{recent, &recent.log, true, []string{"prepare context q", "stmt exec context", "stmt query context", "begin tx", "ping", "exec context q", "query context q"}, errPing},
		{older, &older.log, true, []string{"prepare q", "exec", "query", "begin", "exec q", "query q"}, nil},
		{oldest, &oldest.log, false, []string{"prepare q", "exec", "query", "begin"}, nil},
	} {
		c, ctx := New(tc.driver), t.Context()
		si, err := c.Prepare(ctx, "q")
		require.NoError(t, err)
		res, err := ExecStmt(ctx, si, []driver.NamedValue{{Ordinal: 1}, {Ordinal: 2}})
		require.NoError(t, err)
		require.Equal(t, driver.RowsAffected(2), res)
		_, _ = QueryStmt(ctx, si, nil)
		_, err = c.Begin(ctx, driver.TxOptions{})
		require.NoError(t, err)
		require.Equal(t, tc.ping, c.Ping(ctx))
		require.Equal(t, tc.direct, c.CanExec())
		require.Equal(t, tc.direct, c.CanQuery())
		if tc.direct {
			res, err = c.Exec(ctx, "q", []driver.NamedValue{{Ordinal: 1}})
			require.NoError(t, err)
			require.Equal(t, driver.RowsAffected(1), res)
			_, err = c.Query(ctx, "q", nil)
			require.NoError(t, err)
		}
		require.Equal(t, tc.want, *tc.log)
	}
}

func TestTheOptionalInterfacesAreFound(t *testing.T) {
	none := New(&old{})
	require.Nil(t, none.Checker)
	require.Nil(t, none.Resetter)
	require.Nil(t, none.Validator)
	all := New(&complete{})
	require.NotNil(t, all.Checker)
	require.NotNil(t, all.Resetter)
	require.NotNil(t, all.Validator)
}

type complete struct{ old }

func (*complete) CheckNamedValue(*driver.NamedValue) error { return nil }
func (*complete) ResetSession(context.Context) error       { return nil }
func (*complete) IsValid() bool                            { return true }

func TestErrorsOfThePastAreTheDrivers(t *testing.T) {
	c := New(&refusing{})
	_, err := c.Prepare(t.Context(), "q")
	require.Equal(t, errPing, err)
	_, err = c.Begin(t.Context(), driver.TxOptions{})
	require.Equal(t, errPing, err)
	require.Equal(t, errPing, c.Command(t.Context(), "q"))
}

// refusing neither prepares nor begins.
type refusing struct{ old }

func (*refusing) Prepare(string) (driver.Stmt, error) { return nil, errPing }
func (*refusing) Begin() (driver.Tx, error)           { return nil, errPing }

func TestACommandFailsIfItsStatementCannotBeClosed(t *testing.T) {
	c := New(&unclosing{})
	require.Equal(t, errPing, c.Command(t.Context(), "q"))
}

// unclosing prepares statements that cannot be closed.
type unclosing struct{ old }

func (c *unclosing) Prepare(string) (driver.Stmt, error) { return &unclosingStmt{oldStmt{&c.old}}, nil }

type unclosingStmt struct{ oldStmt }

func (*unclosingStmt) Close() error { return errPing }

func TestADriverWithoutOptionsRefusesThemAsDatabaseSQLDoes(t *testing.T) {
	c := New(&old{})
	_, err := c.Begin(t.Context(), driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelSerializable)})
	require.EqualError(t, err, "sql: driver does not support non-default isolation level")
	_, err = c.Begin(t.Context(), driver.TxOptions{ReadOnly: true})
	require.EqualError(t, err, "sql: driver does not support read-only transactions")
}

func TestAContextThatEndsMeanwhileUndoesWhatKnowsNoContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &old{ended: cancel}
	c := New(d)
	_, err := c.Prepare(ctx, "q")
	require.Equal(t, context.Canceled, err)
	_, err = c.Begin(ctx, driver.TxOptions{})
	require.Equal(t, context.Canceled, err)
	require.Equal(t, []string{"prepare q", "close", "begin", "rollback"}, d.log)
}

func TestAnEndedContextExecutesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &middle{}
	c := New(d)
	_, err := c.Exec(ctx, "q", nil)
	require.Equal(t, context.Canceled, err)
	_, err = c.Query(ctx, "q", nil)
	require.Equal(t, context.Canceled, err)
	_, err = ExecStmt(ctx, &oldStmt{&d.old}, nil)
	require.Equal(t, context.Canceled, err)
	_, err = QueryStmt(ctx, &oldStmt{&d.old}, nil)
	require.Equal(t, context.Canceled, err)
	require.Empty(t, d.log)
}

func TestACommandIsPreparedWhereTheDriverAsksForIt(t *testing.T) {
	naked, skipping := &old{}, &skips{}
	for c, log := range map[driver.Conn]*[]string{naked: &naked.log, skipping: &skipping.log} {
		conn := New(c)
		require.NoError(t, conn.Command(t.Context(), "q"))
		require.Equal(t, []string{"prepare q", "exec", "close"}, *log)
	}
}

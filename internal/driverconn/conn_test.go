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
func (s *oldStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.New("no rows") }

// skips wants its statements prepared.
type skips struct{ old }

func (c *skips) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return nil, driver.ErrSkip
}

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
	d := &old{}
	_, err := ExecStmt(ctx, &oldStmt{d}, nil)
	require.Equal(t, context.Canceled, err)
	_, err = QueryStmt(ctx, &oldStmt{d}, nil)
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

func TestNamedArgumentsNeedADriverThatKnowsThem(t *testing.T) {
	_, err := ExecStmt(t.Context(), &oldStmt{&old{}}, []driver.NamedValue{{Name: "a", Ordinal: 1}})
	require.EqualError(t, err, "sql: driver does not support the use of Named Parameters")
}

// removes keeps its first argument for itself, and refuses "no".
type removes struct{ old }

func (*removes) CheckNamedValue(nv *driver.NamedValue) error {
	switch nv.Value {
	case "option":
		return driver.ErrRemoveArgument
	case "no":
		return errors.New("not this one")
	}
	return driver.ErrSkip
}

func TestArgumentsAreConvertedAsDatabaseSQLDoes(t *testing.T) {
	conn := New(&removes{})
	args := func(values ...any) (named []driver.NamedValue) {
		for i, v := range values {
			named = append(named, driver.NamedValue{Ordinal: i + 1, Value: v})
		}
		return named
	}
	c := ConverterOf(conn.Checker, nil)
	got, err := c.Convert(args("option", int32(3), nil))
	require.NoError(t, err)
	require.Equal(t, []driver.NamedValue{{Ordinal: 1, Value: int64(3)}, {Ordinal: 2}}, got)
	_, err = c.Convert(args(1, "no"))
	require.EqualError(t, err, "sql: converting argument $2 type: not this one")
	_, err = c.Convert(args(struct{}{}))
	require.ErrorContains(t, err, "sql: converting argument $1 type: unsupported type struct {}")
}

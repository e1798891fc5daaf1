package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// settable is a stub whose sessions can set settings, as variables of the session.
type settable struct {
	*stubdialect.Stub
	sets int // calls of SetSettings
}

func (s *settable) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	inner, err := s.Stub.Dial(ctx, cred)
	return &settableSession{Session: inner, counted: s}, err
}

type settableSession struct {
	dialects.Session
	counted *settable
	names   []string
}

func (s *settableSession) CheckSettings([]dialects.ContextSetting) error { return nil }

func (s *settableSession) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	s.counted.sets++
	var texts, names []string
	for _, name := range s.names {
		texts = append(texts, "SET "+name+" = NULL")
	}
	for _, set := range settings {
		name := strings.ReplaceAll(set.Name, ".", "_")
		names = append(names, name)
		texts = append(texts, fmt.Sprintf("SET %s = '%s'", name, set.Value))
	}
	_, err := s.Conn().(stubdialect.FullConn).ExecContext(ctx, strings.Join(texts, "; "), nil)
	s.names = append(names, s.names...)
	if err == nil {
		s.names = names
	}
	return err
}

func openSettable(t *testing.T, most int, options ...pooldriver.Option) (*settable, *sql.DB, *pooldriver.Connector) {
	t.Helper()
	s := &settable{Stub: stubdialect.New(dialects.Traits{})}
	c := pooldriver.Wrap(stubdialect.Connector(s), append([]pooldriver.Option{quiet, maxConns(most)}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Empty(t, s.Server.Violations())
	})
	return s, db, c
}

func tenant(ctx context.Context, name string) context.Context {
	return pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": name})
}

func TestSettingsAreThoseOfTheStatementsContext(t *testing.T) {
	s, db, c := openSettable(t, 1)
	none, a, b := t.Context(), tenant(t.Context(), "a"), tenant(t.Context(), "b")
	for _, want := range []struct {
		ctx  context.Context
		seen any
		sets int // so far
	}{
		{none, nil, 0}, {a, "a", 1}, {a, "a", 1}, {b, "b", 2}, {none, nil, 3}, {none, nil, 3}, {b, "b", 4},
		{pooldriver.WithSettings(b, pooldriver.Settings{"app.user": "u"}), "b", 5}, {pooldriver.WithSettings(a, pooldriver.Settings{}), "a", 6},
	} {
		require.Equal(t, want.seen, show(t, want.ctx, db, "app_tenant"))
		require.Equal(t, want.sets, s.sets)
	}
	require.Nil(t, show(t, a, db, "app_user"), "it has none")
	require.Equal(t, 1, s.Server.State().Opened, "nothing was closed")
	require.Zero(t, c.Stats().Cleanings)
}

// TestAStatementOfATaskHasItsOwnSettings also where the task has a session.
func TestAStatementOfATaskHasItsOwnSettings(t *testing.T) {
	_, db, c := openSettable(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	require.Equal(t, "a", show(t, tenant(ctx, "a"), db, "app_tenant"))
	require.Zero(t, lent(c), "nothing pins it")
	mustExec(t, ctx, db, "SET x = 1")
	require.Equal(t, 1, lent(c))
	require.Equal(t, "b", show(t, tenant(ctx, "b"), db, "app_tenant"))
	require.Nil(t, show(t, ctx, db, "app_tenant"))
}

func TestWhatJoinsATransactionHasItsSettings(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		_, db, _ := openSettable(t, 1, func(c *pooldriver.Config) { c.LazyBegin = lazy })
		ctx, end := pooldriver.WithTask(t.Context())
		a, b := tenant(ctx, "a"), tenant(ctx, "b")
		err := pooldriver.InTx(a, db, nil, func(inside context.Context, _ *sql.Tx) error {
			require.Equal(t, "a", show(t, ctx, db, "app_tenant"))
			require.Equal(t, "a", show(t, inside, db, "app_tenant"))
			_, err := db.ExecContext(b, "SELECT 1")
			require.ErrorContains(t, err, "part of a transaction that began with other settings")
			_, err = db.BeginTx(b, nil)
			require.ErrorContains(t, err, "part of a transaction that began with other settings")
			return pooldriver.InTx(inside, db, nil, func(inside context.Context, _ *sql.Tx) error {
				require.Equal(t, "a", show(t, inside, db, "app_tenant"))
				return nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, "b", show(t, b, db, "app_tenant"))
		end()
		require.Nil(t, show(t, t.Context(), db, "app_tenant"))
	}
}

// TestAConnectionWhoseSettingsCannotBeSetBackIsClosed before anybody's statement runs on it.
func TestAConnectionWhoseSettingsCannotBeSetBackIsClosed(t *testing.T) {
	s, db, _ := openSettable(t, 1)
	require.Equal(t, "a", show(t, tenant(t.Context(), "a"), db, "app_tenant"))
	s.Server.Fail(fakedb.ConnExecCtx, 1, errors.New("out of memory"))
	_, err := db.Exec("SELECT 1")
	require.ErrorContains(t, err, "settings of the context (WithSettings)")
	require.ErrorContains(t, err, "out of memory")
	require.Nil(t, show(t, t.Context(), db, "app_tenant"))
	require.Equal(t, 2, s.Server.State().Opened)
}

// TestSettingsThatWereRefusedAreSetBack: some of them may be in force.
func TestSettingsThatWereRefusedAreSetBack(t *testing.T) {
	s, db, _ := openSettable(t, 1)
	s.Server.Fail(fakedb.ConnExecCtx, 1, errors.New("refused"))
	_, err := db.ExecContext(tenant(t.Context(), "a"), "SELECT 1")
	require.ErrorContains(t, err, "refused")
	require.Nil(t, show(t, t.Context(), db, "app_tenant"))
	require.Equal(t, 2, s.sets)
}

func TestAStatementWithSettingsMovesFromADeadConnection(t *testing.T) {
	s, db, c := openSettable(t, 1)
	for range 3 {
		require.Equal(t, "a", show(t, tenant(t.Context(), "a"), db, "app_tenant"))
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrBadConn, Kill: true})
		require.Equal(t, "b", show(t, tenant(t.Context(), "b"), db, "app_tenant"))
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrBadConn, Kill: true})
		require.Nil(t, show(t, t.Context(), db, "app_tenant"))
	}
	require.EqualValues(t, 3*2, c.Stats().Retries)
}

// TestWhatAStatementHasSetItselfIsNotBelieved where the context says something else.
func TestWhatAStatementHasSetItselfIsNotBelieved(t *testing.T) {
	_, db, _ := openSettable(t, 1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	a := tenant(t.Context(), "a")
	mustExec(t, a, conn, "SET app_tenant = 'mine'")
	var seen any
	require.NoError(t, conn.QueryRowContext(a, "SHOW app_tenant").Scan(&seen))
	require.Equal(t, "a", seen)
}

func TestADialectWithoutSettingsSaysSo(t *testing.T) {
	_, db, _ := openStub(t, dialects.Traits{})
	_, err := db.ExecContext(tenant(t.Context(), "a"), "SELECT 1")
	require.ErrorContains(t, err, "settings of the context (WithSettings) on generic")
	require.ErrorContains(t, err, "its dialect has none")
	_, err = db.BeginTx(tenant(t.Context(), "a"), nil)
	require.ErrorContains(t, err, "its dialect has none")
	mustExec(t, t.Context(), db, "SELECT 1")

	generic := sql.OpenDB(pooldriver.Wrap(fakedb.NewServer().Connector(fakedb.Variant{Name: "everything", Features: fakedb.All}), quiet))
	defer generic.Close()
	_, err = generic.ExecContext(tenant(t.Context(), "a"), "SELECT 1")
	require.ErrorContains(t, err, "give the value to the statement as an argument")
}

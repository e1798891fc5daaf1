package pgxface

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

type said struct {
	*testing.T
	name     string
	ctx      context.Context
	cancel   context.CancelFunc
	errors   []string
	cleanups []func()
}

func listen(t *testing.T, name string) *said {
	s := &said{T: t, name: t.Name() + name}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}
func (s *said) Name() string             { return s.name }
func (s *said) Context() context.Context { return s.ctx }
func (s *said) Failed() bool             { return false }
func (s *said) Error(args ...any)        { s.errors = append(s.errors, fmt.Sprint(args...)) }
func (s *said) Cleanup(fn func())        { s.cleanups = append(s.cleanups, fn) }
func (s *said) end() string {
	s.cancel()
	for _, fn := range s.cleanups {
		fn()
	}
	return strings.Join(s.errors, "\n")
}

func TestSandboxGuardPgx(t *testing.T) {
	b := open(t, "pool_max_conns=4")
	witness := b.Witness(t)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int PRIMARY KEY)")
	require.NoError(t, err)
	on := func(t *testing.T) (*pgxpooldriver.Pool, *sql.DB) {
		return pgxpooldriver.New(sandbox.Connector(t, b.connector)), sandbox.DB(t, b.connector)
	}
	tenant := func(t *testing.T, ctx context.Context, q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (v string) {
		require.NoError(t, q.QueryRow(ctx, "SELECT coalesce(current_setting('app.tenant', true), '')").Scan(&v))
		return v
	}
	ctx := t.Context()
	t.Run("cancel", func(t *testing.T) {
		pool, db := on(t)
		_, err := pool.Exec(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		_, err = pool.Exec(b.UntilItSleeps(t, witness), "SELECT pg_sleep(600)")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, ask[int](ctx, t, pool, "SELECT count(*) FROM t"))
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
		_, err = tx.Exec(b.UntilItSleeps(t, witness), "SELECT pg_sleep(600)")
		require.ErrorIs(t, err, context.Canceled)
		require.Error(t, tx.Commit(ctx))
		var n int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
		require.Equal(t, 1, n)
	})
	t.Run("cancel in rows", func(t *testing.T) {
		pool, _ := on(t)
		soon, cancel := context.WithCancel(ctx)
		defer cancel()
		rows, err := pool.Query(soon, "SELECT n, repeat('x', 1000), CASE WHEN n > 1000 THEN pg_sleep(600) END FROM generate_series(1, 2000) n")
		require.NoError(t, err)
		for rows.Next() {
			cancel()
		}
		require.ErrorIs(t, rows.Err(), context.Canceled)
		require.Equal(t, 0, ask[int](ctx, t, pool, "SELECT count(*) FROM t"))
	})
	t.Run("large rows stream", func(t *testing.T) {
		pool, _ := on(t)
		rows, err := pool.Query(ctx, "SELECT n, repeat('x', 1000) FROM generate_series(1, 200000) n")
		require.NoError(t, err)
		require.True(t, rows.Next())
		rows.Close()
		require.NoError(t, rows.Err())
	})
	t.Run("local settings", func(t *testing.T) {
		pool, _ := on(t)
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL app.tenant = '7'")
			require.NoError(t, err)
			require.Equal(t, "7", tenant(t, ctx, tx))
			return nil
		}))
		require.Empty(t, tenant(t, ctx, pool))
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT set_config('app.tenant', $1, true)", "7")
			return err
		}))
		require.Empty(t, tenant(t, ctx, pool))
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT set_config($1, $2, true)", "app.tenant", "7")
			return err
		}))
		require.Empty(t, tenant(t, ctx, pool))
		require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error { // a session that is not cleaned between them
			require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var set string
				return tx.QueryRow(ctx, "SELECT set_config($1, $2, true)", pgx.QueryExecModeExec, "app.tenant", "7").Scan(&set)
			}))
			require.Empty(t, tenant(t, ctx, pool))
			return nil
		}))
	})
	t.Run("settings of contexts", func(t *testing.T) {
		pool, db := on(t)
		a := pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": "a"})
		require.Equal(t, "a", tenant(t, a, pool))
		require.Empty(t, tenant(t, ctx, pool))
		require.NoError(t, pgx.BeginFunc(a, pool, func(tx pgx.Tx) error {
			require.Equal(t, "a", tenant(t, ctx, tx))
			require.Equal(t, "a", tenant(t, a, tx))
			return nil
		}))
		require.Empty(t, tenant(t, ctx, pool))
		var v string
		require.NoError(t, db.QueryRowContext(a, "SELECT current_setting('app.tenant', true)").Scan(&v))
		require.Equal(t, "a", v)
		require.NoError(t, pool.AcquireFunc(a, func(c *pgxpooldriver.Conn) error {
			require.Empty(t, tenant(t, ctx, c)) // the settings are those of each call
			return nil
		}))
		require.Empty(t, tenant(t, ctx, pool))
	})
	t.Run("by hand", func(t *testing.T) {
		pool, _ := on(t)
		require.NoError(t, pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			for _, text := range []string{"BEGIN", "INSERT INTO t VALUES (9)", "ROLLBACK", "BEGIN", "INSERT INTO t VALUES (8)", "COMMIT"} {
				_, err := c.Exec(ctx, text)
				require.NoError(t, err, text)
			}
			return nil
		}))
		require.Equal(t, 1, ask[int](ctx, t, pool, "SELECT count(*) FROM t"))
	})
	t.Run("two transactions", func(t *testing.T) {
		pool, db := on(t)
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = pool.Begin(ctx) // said at once: what was waited for has another error
		require.ErrorContains(t, err, "would wait for ever")
		_, err = db.Exec("INSERT INTO t VALUES (1)")
		require.ErrorContains(t, err, "would wait for ever")
		require.NoError(t, tx.Rollback(ctx))
		nested, err := pool.Begin(ctx)
		require.NoError(t, err)
		inner, err := nested.Begin(ctx)
		require.NoError(t, err)
		_, err = inner.Exec(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, inner.Rollback(ctx))
		_, err = pool.Begin(ctx)
		require.ErrorContains(t, err, "would wait for ever", "the outer one is still open")
		require.NoError(t, nested.Commit(ctx))
		require.Equal(t, 0, ask[int](ctx, t, pool, "SELECT count(*) FROM t"))
	})
	t.Run("left", func(t *testing.T) {
		s := listen(t, "/a")
		pool := pgxpooldriver.New(sandbox.Connector(s, b.connector))
		_, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.Contains(t, s.end(), "a transaction that is open")
		_, err = pool.Exec(ctx, "SELECT 1")
		require.ErrorContains(t, err, "has ended")
		s = listen(t, "/b")
		pool = pgxpooldriver.New(sandbox.Connector(s, b.connector))
		rows, err := pool.Query(ctx, "SELECT 1 UNION SELECT 2")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.Contains(t, s.end(), "rows that are open")
		rows.Close()
		s = listen(t, "/c")
		pool = pgxpooldriver.New(sandbox.Connector(s, b.connector))
		c, err := pool.Acquire(ctx)
		require.NoError(t, err)
		_, err = c.Exec(ctx, "INSERT INTO t VALUES (3)")
		require.NoError(t, err)
		require.Contains(t, s.end(), "Conn that is open")
		c.Release()
	})
	require.Equal(t, 0, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
}

func TestSandboxGuardLazyBegin(t *testing.T) {
	b := open(t)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int PRIMARY KEY)")
	require.NoError(t, err)
	c := pooldriver.New(b.URL(), quiet, func(c *pooldriver.Config) { c.LazyBegin = true })
	t.Run("test", func(t *testing.T) {
		db := sandbox.DB(t, c)
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		tx, err = db.Begin()
		require.NoError(t, err)
		_, err = db.Begin()
		require.ErrorContains(t, err, "would wait for ever")
		require.NoError(t, tx.Commit())
		var n int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
		require.Zero(t, n)
	})
	require.NoError(t, c.Close())
}

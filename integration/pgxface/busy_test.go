package pgxface

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// conn is what a *pgxpool.Conn and ours have in common, and a pgx.Tx.
type conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// While rows of a connection or transaction are open, what pgx cannot do is "conn busy", and the connection lives.
func TestRowsThatAreOpenMakeTheirConnectionBusy(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	peer, err := pgxpool.New(ctx, b.URL("pool_max_conns=1"))
	require.NoError(t, err)
	defer peer.Close()
	refuses := func(t *testing.T, on conn, rows pgx.Rows) {
		require.True(t, rows.Next())
		_, err := on.Exec(ctx, "SELECT 1")
		require.ErrorContains(t, err, "conn busy")
		_, err = on.Begin(ctx)
		require.ErrorContains(t, err, "conn busy")
	}
	busy := func(t *testing.T, on conn, rows pgx.Rows) {
		refuses(t, on, rows)
		require.True(t, rows.Next())
		rows.Close()
		require.NoError(t, rows.Err())
		tx, err := on.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(ctx))
	}
	const query = "SELECT generate_series(1, 100000)"
	inTx := func(t *testing.T, begin func(context.Context) (pgx.Tx, error)) {
		tx, err := begin(ctx)
		require.NoError(t, err)
		rows, err := tx.Query(ctx, query)
		require.NoError(t, err)
		busy(t, tx, rows)
		require.NoError(t, tx.Commit(ctx))
	}
	t.Run("pgxpool", func(t *testing.T) {
		tx, err := peer.Begin(ctx)
		require.NoError(t, err)
		rows, err := tx.Query(ctx, query)
		require.NoError(t, err)
		refuses(t, tx, rows) // and the connection is closed
		_ = tx.Rollback(ctx)
		c, err := peer.Acquire(ctx)
		require.NoError(t, err)
		defer c.Release()
		rows, err = c.Query(ctx, query)
		require.NoError(t, err)
		refuses(t, c, rows)
	})
	pid := ask[int](ctx, t, b.pool, pidQuery)
	for _, lent := range []bool{false, true} {
		inTx(t, b.pool.Begin)
		c, err := b.pool.Acquire(ctx)
		require.NoError(t, err)
		if lent {
			require.NotNil(t, c.Conn())
		}
		rows, err := c.Query(ctx, query)
		require.NoError(t, err)
		busy(t, c, rows)
		inTx(t, c.Begin)
		if lent {
			rows, err = c.Conn().Query(ctx, query)
			require.NoError(t, err)
			busy(t, c, rows)
		}
		c.Release()
	}
	require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery))
	b.atRest(t)
}

// What pgx keeps for its statements is in the figures of the statement cache, a batch's statements, too.
func TestStatementsOfPgxAreCounted(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	counted := func(hits, misses int, what string, do func() error) {
		t.Helper()
		before := b.connector.Stats()
		require.NoError(t, do())
		after := b.connector.Stats()
		require.EqualValues(t, misses, after.StmtMisses-before.StmtMisses, what)
		require.EqualValues(t, hits, after.StmtHits-before.StmtHits, what)
	}
	query := func(text string) func() error {
		return func() error {
			var n int
			return b.pool.QueryRow(ctx, text, 1).Scan(&n)
		}
	}
	counted(0, 1, "first", query("SELECT $1::int"))
	counted(1, 0, "again", query("SELECT $1::int"))
	counted(1, 0, "by database/sql", func() error {
		var n int
		return b.db.QueryRowContext(ctx, "SELECT $1::int", 1).Scan(&n)
	})
	counted(0, 0, "without arguments", func() error { _, err := b.pool.Exec(ctx, "SELECT 1"); return err })
	batch := func() error {
		var batch pgx.Batch
		for range 3 {
			batch.Queue("SELECT $1::int", 1)
			batch.Queue("SELECT $1::int + 1", 1)
		}
		return b.pool.SendBatch(ctx, &batch).Close()
	}
	counted(5, 1, "batch", batch)
	counted(6, 0, "batch", batch)
	counted(0, 0, "mode", func() error { _, err := b.pool.Exec(ctx, "SELECT $1::int", pgx.QueryExecModeExec, 1); return err })
}

// In QueryExecModeExec pgx writes a batch past what could carry something in front of it.
func TestABatchInModeExecBeginsAndSetsFirst(t *testing.T) {
	t.Parallel()
	const tenant = "SELECT coalesce(current_setting('app.tenant', true), '')"
	for _, lazy := range []string{"true", "false"} {
		b, ctx := open(t, "pool_max_conns=1", "default_query_exec_mode=exec", "pool_lazy_begin="+lazy), t.Context()
		_, err := b.pool.Exec(ctx, "CREATE TABLE t (tenant text DEFAULT current_setting('app.tenant', true))")
		require.NoError(t, err)
		pid := ask[int](ctx, t, b.pool, pidQuery)
		as := func(tenant string) context.Context {
			return pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": tenant})
		}
		for _, texts := range [][]string{{"INSERT INTO t DEFAULT VALUES"}, {"INSERT INTO t DEFAULT VALUES", "SELECT 1"}} {
			require.NoError(t, b.pool.SendBatch(as("a"), batchOf(texts...)).Close())
			require.Empty(t, ask[string](ctx, t, b.pool, tenant))
			for _, begun := range []context.Context{ctx, as("b")} {
				for _, end := range []func(pgx.Tx) error{
					func(tx pgx.Tx) error { return tx.Rollback(ctx) },
					func(tx pgx.Tx) error { return tx.Commit(ctx) },
				} {
					tx, err := b.pool.Begin(begun)
					require.NoError(t, err)
					require.NoError(t, tx.SendBatch(ctx, batchOf(texts...)).Close())
					require.NoError(t, end(tx))
					require.Empty(t, ask[string](ctx, t, b.pool, tenant))
				}
			}
		}
		require.Equal(t, "2 a, 2 b, 2 none", ask[string](ctx, t, b.pool,
			"SELECT string_agg(n || ' ' || tenant, ', ' ORDER BY tenant) FROM (SELECT count(*) n, coalesce(nullif(tenant, ''), 'none') tenant FROM t GROUP BY 2) s"))
		require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery))
		b.atRest(t)
	}
}

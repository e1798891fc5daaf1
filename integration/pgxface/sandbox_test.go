package pgxface

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

func TestInASandboxNothingStays(t *testing.T) {
	b := open(t, "pool_max_conns=4")
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int PRIMARY KEY)")
	require.NoError(t, err)
	count := func(ctx context.Context) int { return ask[int](ctx, t, b.pool, "SELECT count(*) FROM t") }
	t.Run("test", func(t *testing.T) {
		ctx, outside := t.Context(), count
		inside := pgxpooldriver.New(sandbox.Connector(t, b.connector))
		b := struct {
			pool *pgxpooldriver.Pool
			db   *sql.DB
		}{inside, sandbox.DB(t, b.connector)}
		count := func(ctx context.Context) int { return ask[int](ctx, t, b.pool, "SELECT count(*) FROM t") }
		_, err := b.pool.Exec(ctx, "INSERT INTO t VALUES ($1)", 1)
		require.NoError(t, err)
		_, err = b.db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
		_, err = b.pool.Exec(ctx, "INSERT INTO t VALUES (2)")
		require.Error(t, err)
		require.Equal(t, 2, count(ctx))
		require.Zero(t, outside(t.Context()))
		require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t VALUES (3)")
			require.NoError(t, err)
			rows, err := tx.Query(ctx, "SELECT id FROM t ORDER BY id")
			require.NoError(t, err)
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(t, err)
			require.Equal(t, []int{1, 2, 3}, ids)
			var batch pgx.Batch
			batch.Queue("INSERT INTO t VALUES (4)")
			batch.Queue("INSERT INTO t VALUES (5)")
			return tx.SendBatch(ctx, &batch).Close()
		}))
		require.Error(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t VALUES (6), (6)")
			return err
		}))
		n, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{7}}))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
			tx, err := b.db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer tx.Rollback()
			require.Equal(t, 6, count(ctx))
			_, err = b.pool.Exec(ctx, "DELETE FROM t")
			return err
		}))
		require.Equal(t, 6, count(ctx))
		var batch pgx.Batch
		batch.Queue("INSERT INTO t VALUES (8)")
		batch.Queue("INSERT INTO t VALUES (8)")
		require.ErrorContains(t, b.pool.SendBatch(ctx, &batch).Close(), "23505")
		require.Equal(t, 6, count(ctx))
		batch = pgx.Batch{}
		batch.Queue("INSERT INTO t VALUES (8)")
		batch.Queue("SELECT 1 / (2 - i) FROM generate_series(1, 2) i") // fails after its first row
		require.ErrorContains(t, b.pool.SendBatch(ctx, &batch).Close(), "22012")
		require.Equal(t, 6, count(ctx))
		require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			require.Equal(t, 6, ask[int](ctx, t, c.Conn(), "SELECT count(*) FROM t"))
			return nil
		}))
	})
	require.Zero(t, count(t.Context()))
}

func TestASandboxHasTheSettingsOfAContext(t *testing.T) {
	const tenant = "SELECT coalesce(current_setting('app.tenant', true), '')"
	b := open(t)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int, tenant text DEFAULT current_setting('app.tenant', true))")
	require.NoError(t, err)
	t.Run("test", func(t *testing.T) {
		plain := t.Context()
		b := over(t, b.Account, sandbox.Connector(t, b.connector))
		ctx := pooldriver.WithSettings(plain, pooldriver.Settings{"app.tenant": "a"})
		require.Equal(t, "a", ask[string](ctx, t, b.pool, tenant))
		require.Empty(t, ask[string](plain, t, b.pool, tenant))
		var batch pgx.Batch
		batch.Queue(tenant).QueryRow(func(row pgx.Row) error {
			var got string
			require.NoError(t, row.Scan(&got))
			require.Equal(t, "a", got)
			return nil
		})
		require.NoError(t, b.pool.SendBatch(ctx, &batch).Close())
		_, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
		require.NoError(t, err)
		require.Equal(t, "a", ask[string](plain, t, b.pool, "SELECT tenant FROM t"))
		require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			require.Equal(t, "a", ask[string](ctx, t, c, tenant))
			require.Equal(t, "a", ask[string](plain, t, c.Conn(), tenant))
			return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				require.Equal(t, "a", ask[string](plain, t, tx, tenant))
				return nil
			})
		}))
		require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			require.Equal(t, "a", ask[string](plain, t, tx, tenant))
			require.Equal(t, "a", ask[string](plain, t, tx.Conn(), tenant))
			return nil
		}))
		require.Empty(t, ask[string](plain, t, b.pool, tenant))
	})
}

// In QueryExecModeExec pgx writes a batch past what could carry a savepoint and settings.
func TestABatchInModeExecInASandbox(t *testing.T) {
	b := open(t, "default_query_exec_mode=exec", "pool_lazy_begin=true")
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (tenant text DEFAULT current_setting('app.tenant', true))")
	require.NoError(t, err)
	t.Run("test", func(t *testing.T) {
		b := over(t, b.Account, sandbox.Connector(t, b.connector))
		for _, plain := range []context.Context{t.Context(), context.Background()} {
			a := pooldriver.WithSettings(plain, pooldriver.Settings{"app.tenant": "a"})
			require.NoError(t, b.pool.SendBatch(a, batchOf("INSERT INTO t DEFAULT VALUES")).Close())
			tx, err := b.pool.Begin(a)
			require.NoError(t, err)
			require.NoError(t, tx.SendBatch(plain, batchOf("INSERT INTO t DEFAULT VALUES", "SELECT 1")).Close())
			require.NoError(t, tx.Commit(plain))
			require.ErrorContains(t, b.pool.SendBatch(a, batchOf("INSERT INTO t DEFAULT VALUES", "SELECT 1 / 0")).Close(), "22012")
			require.NoError(t, b.pool.SendBatch(plain, batchOf("INSERT INTO t DEFAULT VALUES")).Close())
		}
		require.Equal(t, "2 of none, 4 of a", ask[string](t.Context(), t, b.pool,
			"SELECT count(*) FILTER (WHERE coalesce(tenant, '') = '') || ' of none, ' || count(*) FILTER (WHERE tenant = 'a') || ' of a' FROM t"))
	})
}

// What a lent connection, a task or an argument leaves in a sandbox is not there for the next statement.
func TestASandboxAfterWhatIsLeft(t *testing.T) {
	const tenant = "SELECT coalesce(current_setting('app.tenant', true), '')"
	b := open(t)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	t.Run("test", func(t *testing.T) {
		b, plain := over(t, b.Account, sandbox.Connector(t, b.connector)), t.Context()
		require.NoError(t, b.pool.AcquireFunc(pooldriver.WithSettings(plain, pooldriver.Settings{"app.tenant": "a"}), func(c *pgxpooldriver.Conn) error {
			require.Equal(t, "a", ask[string](plain, t, c.Conn(), tenant))
			_, err := c.Exec(plain, "INSERT INTO t VALUES (1)")
			require.NoError(t, err)
			_, err = c.Exec(plain, "SELECT 1 / 0")
			require.ErrorContains(t, err, "22012")
			require.Equal(t, "a", ask[string](plain, t, c, tenant)) // the error was that statement's alone
			return nil
		}))
		for range 2 {
			require.NoError(t, b.pool.AcquireFunc(plain, func(c *pgxpooldriver.Conn) error {
				require.Empty(t, ask[string](plain, t, c.Conn(), tenant))
				return nil
			}))
		}
		ctx, end := pooldriver.WithTask(plain)
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
		rows, err := b.pool.Query(ctx, "SELECT 1 FROM t")
		require.NoError(t, err)
		require.True(t, rows.Next())
		end() // nobody ends the transaction, and nobody closes the rows
		short, cancel := context.WithCancel(plain)
		for _, exec := range []func() error{
			func() error { _, err := b.pool.Exec(short, "SELECT $1::int", panicking{}); return err },
			func() error { _, err := b.db.ExecContext(short, "SELECT $1::int", panicking{}); return err },
			func() error { _, err := b.db.QueryContext(short, "SELECT $1::int", panicking{}); return err },
		} {
			require.Panics(t, func() { _ = exec() })
		}
		cancel()
		for range 100 { // no request to stop what has panicked stops them
			require.Equal(t, 1, ask[int](plain, t, b.pool, "SELECT count(*) FROM t"))
		}
	})
}

type panicking struct{}

func (panicking) Value() (driver.Value, error) { panic("an argument") }

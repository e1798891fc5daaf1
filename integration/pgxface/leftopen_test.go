package pgxface

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

func batchOf(texts ...string) *pgx.Batch {
	var batch pgx.Batch
	for _, text := range texts {
		batch.Queue(text)
	}
	return &batch
}

// Rows and results that are open when their transaction ends are closed, as with database/sql. They say so, and keep no connection.
func TestATransactionEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	eachEnd := func(t *testing.T, fn func(ctx context.Context, end func(pgx.Tx) error)) {
		for _, inTask := range []bool{false, true} {
			for name, end := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
				t.Run(fmt.Sprintf("%s, in a task: %v", name, inTask), func(t *testing.T) {
					ctx, endTask := t.Context(), func() {}
					if inTask {
						ctx, endTask = pooldriver.WithTask(ctx)
					}
					defer endTask()
					for range 2 {
						fn(ctx, func(tx pgx.Tx) error { return end(tx, ctx) })
					}
				})
				b.atRest(t)
			}
		}
	}
	eachEnd(t, func(ctx context.Context, end func(pgx.Tx) error) {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		rows, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, end(tx))
		require.False(t, rows.Next())
		require.ErrorContains(t, rows.Err(), "were open")
	})
	eachEnd(t, func(ctx context.Context, end func(pgx.Tx) error) {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		results := tx.SendBatch(ctx, batchOf("SELECT 1", "INSERT INTO t VALUES (1)"))
		require.NoError(t, end(tx))
		_, err = results.Exec()
		require.ErrorContains(t, err, "were open")
		require.ErrorContains(t, results.Close(), "were open")
	})
	require.Equal(t, 4, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

// What a Conn has given out is dead after Release, whether Conn.Conn was called before or not. What the program has begun
// on the lent connection itself costs that connection.
func TestNothingOfAConnGoesOnAfterRelease(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	for _, lent := range []bool{false, true} {
		for name, use := range map[string]func(c *pgxpooldriver.Conn) func() error{
			"a transaction": func(c *pgxpooldriver.Conn) func() error {
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				return func() error { return tx.Commit(ctx) }
			},
			"rows": func(c *pgxpooldriver.Conn) func() error {
				rows, err := c.Query(ctx, "SELECT generate_series(1, 1000)")
				require.NoError(t, err)
				require.True(t, rows.Next())
				return func() error { require.False(t, rows.Next()); return rows.Err() }
			},
			"results": func(c *pgxpooldriver.Conn) func() error {
				results := c.SendBatch(ctx, batchOf("SELECT 1", "SELECT 2"))
				_, err := results.Exec()
				require.NoError(t, err)
				return func() error {
					_, err := results.Exec()
					return errors.Join(err, results.Close())
				}
			},
			"rows of results": func(c *pgxpooldriver.Conn) func() error {
				rows, err := c.SendBatch(ctx, batchOf("SELECT generate_series(1, 1000)", "SELECT 2")).Query()
				require.NoError(t, err)
				require.True(t, rows.Next())
				return func() error { require.False(t, rows.Next()); return rows.Err() }
			},
			"a large object": func(c *pgxpooldriver.Conn) func() error {
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				objects := tx.LargeObjects()
				id, err := objects.Create(ctx, 0)
				require.NoError(t, err)
				object, err := objects.Open(ctx, id, pgx.LargeObjectModeWrite)
				require.NoError(t, err)
				return func() error {
					_, err := object.Write([]byte("late"))
					_, late := objects.Create(ctx, 0)
					require.ErrorIs(t, late, pgx.ErrTxClosed)
					return err
				}
			},
			"the Conn": func(c *pgxpooldriver.Conn) func() error {
				return func() error {
					require.Error(t, c.Ping(ctx))
					_, err := c.Begin(ctx)
					require.Error(t, err)
					require.Error(t, c.SendBatch(ctx, batchOf("SELECT 1")).Close())
					require.Error(t, c.QueryRow(ctx, "SELECT 1").Scan(new(int)))
					require.Nil(t, c.Conn())
					_, err = c.Exec(ctx, "ROLLBACK")
					return err
				}
			},
			"a transaction of the lent connection": func(c *pgxpooldriver.Conn) func() error {
				tx, err := c.Conn().Begin(ctx)
				require.NoError(t, err)
				return func() error { return tx.Commit(ctx) }
			},
		} {
			c, err := b.pool.Acquire(ctx)
			require.NoError(t, err)
			if lent {
				require.NotNil(t, c.Conn())
			}
			late := use(c)
			c.Release()
			next, err := b.pool.Acquire(ctx)
			require.NoError(t, err)
			_, err = next.Exec(ctx, "BEGIN")
			require.NoError(t, err)
			require.Error(t, late(), name)
			require.Equal(t, byte('T'), next.Conn().PgConn().TxStatus(), name)
			next.Release()
		}
	}
	b.atRest(t)
}

// A CopyFromSource that uses its own transaction gets errors, and waits for nothing.
func TestACopyWhoseSourceUsesItsTransaction(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	_, err := b.pool.Exec(ctx, "CREATE TABLE t (id int)")
	require.NoError(t, err)
	into := func(q interface {
		CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	}, fn func() error) error {
		_, err := q.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromSlice(2, func(i int) ([]any, error) { return []any{i}, fn() }))
		return err
	}
	for _, use := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1"); return err },
		func(tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT 1").Scan(new(int)) },
		func(tx pgx.Tx) error { return tx.SendBatch(ctx, batchOf("SELECT 1")).Close() },
		func(tx pgx.Tx) error { return into(tx, func() error { return nil }) },
		func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		func(tx pgx.Tx) error { return tx.Commit(ctx) },
	} {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		require.Error(t, into(tx, func() error { return use(tx) }))
		require.NoError(t, tx.Rollback(ctx))
		b.atRest(t)
	}

	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, into(tx, func() error {
		if c != nil {
			c.Release() // takes place when the copy has ended
			c = nil
		}
		return nil
	}))
	require.ErrorIs(t, tx.Commit(ctx), pgx.ErrTxClosed)
	require.Zero(t, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

func TestALentConnectionHasTheSettingsOfItsContext(t *testing.T) {
	t.Parallel()
	const tenant = "SELECT coalesce(current_setting('app.tenant', true), '')"
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	c, err := b.pool.Acquire(pooldriver.WithSettings(ctx, map[string]string{"app.tenant": "a"}))
	require.NoError(t, err)
	require.Equal(t, "a", ask[string](ctx, t, c.Conn(), tenant))
	c.Release()
	require.Empty(t, ask[string](ctx, t, b.pool, tenant))
	tx, err := b.pool.Begin(pooldriver.WithSettings(ctx, map[string]string{"app.tenant": "b"}))
	require.NoError(t, err)
	require.Equal(t, "b", ask[string](ctx, t, tx.Conn(), tenant))
	require.NoError(t, tx.Commit(ctx))
	require.Empty(t, ask[string](ctx, t, b.pool, tenant))
	b.atRest(t)
}

// ending is a context that has ended once it was asked so often. It tells nobody of it.
type ending struct {
	context.Context
	left atomic.Int32
}

func (e *ending) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestABeginThatFailsLeavesTheRowsOfItsConn, whenever its context ends.
func TestABeginThatFailsLeavesTheRowsOfItsConn(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer c.Release()
	for asked, failed := int32(0), true; failed; asked++ {
		rows, err := c.Query(ctx, "SELECT generate_series(1, 3)")
		require.NoError(t, err)
		begin := ending{Context: ctx}
		begin.left.Store(asked)
		tx, err := c.Begin(&begin)
		if failed = err != nil; failed {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, tx.Rollback(ctx))
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err, asked)
		require.Equal(t, []int{1, 2, 3}, all)
		require.Less(t, asked, int32(100))
	}
}

// Rows in memory end with their context, whoever reads them or closes them meanwhile. Nothing of them is counted, and nobody
// else's rows end.
func TestRowsInMemoryEndWithTheirContext(t *testing.T) {
	t.Parallel()
	b, seed := open(t, "pool_max_conns=4"), randomtest.Seed(t)
	readers := func(t *testing.T, i uint64) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, i))
			for range randomtest.Rounds(60, 600) {
				ctx, cancel := context.WithCancel(t.Context())
				task, end := pooldriver.WithTask(ctx)
				rows := manyRows(task, t, b.pool, random)
				require.True(t, rows.Next())
				require.Equal(t, 5, ask[int](task, t, b.pool, "SELECT 5")) // so they are in memory
				go cancel()
				n := 1
				for rows.Next() && (random.IntN(100) > 0) {
					n++
				}
				if random.IntN(2) == 0 {
					rows.Close() // else they are forgotten
				}
				if err := rows.Err(); err != nil {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.LessOrEqual(t, n, 1000)
				}
				end()
			}
		})
	}
	t.Run("readers", func(t *testing.T) {
		for i := range uint64(8) {
			readers(t, i)
		}
	})
	require.Eventually(t, func() bool { return b.connector.Stats().BufferedBytes == 0 }, waits, tick)
	b.atRest(t)
	require.Equal(t, 5, ask[int](t.Context(), t, b.pool, "SELECT 5"))
}

// manyRows returns the rows of a query, of a batch, or of a Conn.
func manyRows(ctx context.Context, t *testing.T, pool *pgxpooldriver.Pool, random *rand.Rand) (rows pgx.Rows) {
	const query = "SELECT g FROM generate_series(1, 1000) g"
	var err error
	switch random.IntN(3) {
	case 0:
		rows, err = pool.Query(ctx, query)
	case 1:
		rows, err = pool.SendBatch(ctx, batchOf(query, "SELECT 1")).Query()
	default:
		c, acquired := pool.Acquire(ctx)
		require.NoError(t, acquired)
		t.Cleanup(c.Release)
		rows, err = c.Query(ctx, query)
	}
	require.NoError(t, err)
	return rows
}

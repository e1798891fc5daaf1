package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// target makes every wait of a statement of low priority too long, if another one waits behind it.
func target(c *pooldriver.Config) { c.QueueTarget = time.Nanosecond }

func low(ctx context.Context) context.Context {
	return pooldriver.WithPriority(ctx, pooldriver.PriorityLow)
}

// queued begins a statement, which waits as number n.
func queued(t *testing.T, c *pooldriver.Connector, n int, ctx context.Context, db *sql.DB) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		done <- err
	}()
	waiting(t, c, n)
	return done
}

func TestAStatementOfLowPriorityIsRefusedUnderLoad(t *testing.T) {
	t.Parallel()
	for name, lowly := range map[string]func(*testing.T) context.Context{
		"without a task": func(t *testing.T) context.Context { return low(t.Context()) },
		"with a label":   func(t *testing.T) context.Context { return pooldriver.Label(low(t.Context()), "report") },
		"in a task": func(t *testing.T) context.Context {
			ctx, end := pooldriver.WithTask(low(t.Context()))
			t.Cleanup(end)
			return ctx
		},
		"in a task, by the statement": func(t *testing.T) context.Context {
			ctx, end := pooldriver.WithTask(t.Context())
			t.Cleanup(end)
			return low(ctx)
		},
		"outside of a task": func(t *testing.T) context.Context {
			ctx, end := pooldriver.WithTask(low(t.Context()))
			t.Cleanup(end)
			return pooldriver.Outside(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told pooldriver.AcquireInfo
			var mu sync.Mutex
			server, db, c := openTasks(t, 1, target, func(c *pooldriver.Config) {
				c.Observer = &pooldriver.Observer{AcquireDone: func(_ context.Context, info pooldriver.AcquireInfo) {
					mu.Lock()
					defer mu.Unlock()
					if info.Err != nil {
						told = info
					}
				}}
			})
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			refused := queued(t, c, 1, lowly(t), db)
			served := queued(t, c, 2, t.Context(), db)
			require.NoError(t, tx.Rollback())
			err = <-refused
			require.ErrorIs(t, err, pooldriver.ErrOverloaded)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			own, ok := errors.AsType[*pooldriver.AcquireError](err)
			require.True(t, ok)
			require.NotZero(t, own.RetryAfter)
			require.NotZero(t, own.Waited)
			require.ErrorContains(t, err, "pool_queue_target")
			require.NoError(t, <-served)
			require.Len(t, server.Table("t"), 1, "the refused statement did not run")
			s := c.Stats()
			require.EqualValues(t, 1, s.AcquireFailures[pooldriver.AcquireOverloaded])
			require.EqualValues(t, 1, s.Pool.ShedLow)
			mu.Lock()
			defer mu.Unlock()
			require.ErrorIs(t, told.Err, pooldriver.ErrOverloaded)
			require.NotZero(t, told.Wait)
		})
	}
}

func TestPriorityNormalTakesLowBack(t *testing.T) {
	t.Parallel()
	_, db, c := openTasks(t, 1, target)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	served := queued(t, c, 1, pooldriver.WithPriority(low(t.Context()), pooldriver.PriorityNormal), db)
	behind := queued(t, c, 2, low(t.Context()), db)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-served)
	require.NoError(t, <-behind, "it is the last that waits")
}

// TestWhoeverHoldsAConnectionIsNotRefused: others may wait for what he holds.
func TestWhoeverHoldsAConnectionIsNotRefused(t *testing.T) {
	t.Parallel()
	type key struct{}
	for name, begin := range map[string]func(t *testing.T) (holds, nests context.Context){
		"a task in which a transaction must not be joined": func(t *testing.T) (context.Context, context.Context) {
			ctx, end := pooldriver.WithTask(low(t.Context()))
			t.Cleanup(end)
			return ctx, pooldriver.Outside(ctx)
		},
		"a task around the statement's": func(t *testing.T) (context.Context, context.Context) {
			ctx, end := pooldriver.WithTask(low(t.Context()))
			t.Cleanup(end)
			inner, endInner := pooldriver.NewTask(ctx)
			t.Cleanup(endInner)
			return ctx, inner
		},
		"an implicit task": func(t *testing.T) (context.Context, context.Context) {
			ctx, cancel := context.WithCancel(context.WithValue(low(t.Context()), key{}, "request"))
			t.Cleanup(cancel)
			return ctx, ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db, c := openTasks(t, 2, target, func(c *pooldriver.Config) {
				c.TaskKey = func(ctx context.Context) (any, context.Context) { return ctx.Value(key{}), ctx }
			})
			holds, nests := begin(t)
			outer, err := db.BeginTx(holds, nil)
			require.NoError(t, err)
			other, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			nested := queued(t, c, 1, nests, db)
			behind := queued(t, c, 2, t.Context(), db)
			require.NoError(t, other.Rollback())
			require.NoError(t, <-nested)
			require.NoError(t, <-behind)
			require.NoError(t, outer.Rollback())
			require.Zero(t, c.Stats().Pool.Shed)
		})
	}
}

// TestALoopOverRowsInMemoryIsNotRefused: its connection serves others, but the loop has begun.
func TestALoopOverRowsInMemoryIsNotRefused(t *testing.T) {
	t.Parallel()
	type key struct{}
	for name, begin := range map[string]func(context.Context) (loops, nests context.Context, end func()){
		"a task": func(ctx context.Context) (context.Context, context.Context, func()) {
			ctx, end := pooldriver.WithTask(ctx)
			return ctx, ctx, end
		},
		"a task around the statement's": func(ctx context.Context) (context.Context, context.Context, func()) {
			ctx, end := pooldriver.WithTask(ctx)
			return ctx, pooldriver.Outside(ctx), end
		},
		"an implicit task": func(ctx context.Context) (context.Context, context.Context, func()) {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, key{}, "request"))
			return ctx, ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db, c := openTasks(t, 1, target, func(c *pooldriver.Config) {
				c.TaskKey = func(ctx context.Context) (any, context.Context) { return ctx.Value(key{}), ctx }
			})
			loops, nests, end := begin(low(t.Context()))
			defer end()
			rows, err := db.QueryContext(loops, "SELECT n FROM numbers LIMIT 3")
			require.NoError(t, err)
			require.True(t, rows.Next())
			other, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, c.Stats().Reclaims)
			nested := queued(t, c, 1, nests, db)
			behind := queued(t, c, 2, t.Context(), db)
			require.NoError(t, other.Rollback())
			require.NoError(t, <-nested)
			require.NoError(t, <-behind)

			require.NoError(t, rows.Close())
			other, err = db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			begins := make(chan error, 1)
			go func() {
				_, err := db.ExecContext(loops, "INSERT INTO t VALUES (1)")
				begins <- err
			}()
			require.Eventually(t, func() bool { return c.Stats().Pool.Waiting > 0 || c.Stats().Pool.Shed > 0 }, patience, time.Millisecond)
			behind = queued(t, c, c.Stats().Pool.Waiting+1, t.Context(), db)
			require.NoError(t, other.Rollback())
			require.ErrorIs(t, <-begins, pooldriver.ErrOverloaded, "its loop is over")
			require.NoError(t, <-behind)
		})
	}
}

func TestNobodyWhoWaitsIsRefusedWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1, target)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		first, second := queued(t, c, 1, low(t.Context()), db), queued(t, c, 2, low(t.Context()), db)
		done := drains(c)
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		requireDrained(t, server, c, done)
	})
}

func TestABusyPoolThatRefusesIsReady(t *testing.T) {
	t.Parallel()
	_, db, c := openTasks(t, 1, target)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	waits := queued(t, c, 1, low(t.Context()), db)
	require.NoError(t, c.Ready(t.Context()))
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-waits)
}

func TestADryRunOnlyCounts(t *testing.T) {
	t.Parallel()
	_, db, c := openTasks(t, 1, target, func(c *pooldriver.Config) { c.QueueDry = true })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	first, second := queued(t, c, 1, low(t.Context()), db), queued(t, c, 2, t.Context(), db)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	require.EqualValues(t, 1, c.Stats().WouldRefuse)
	require.Zero(t, c.Stats().AcquireFailures[pooldriver.AcquireOverloaded])
}

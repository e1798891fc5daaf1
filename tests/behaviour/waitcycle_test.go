package behaviour

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// implicitly begins a task as httptask does.
func implicitly(ctx context.Context) (context.Context, func()) { return task.WithImplicit(ctx) }

func unchanged(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

func outsideOf(ctx context.Context) (context.Context, func()) {
	return pooldriver.Outside(ctx), func() {}
}

// sided are the ways to want a connection beside the task's transaction.
var sided = []struct {
	name   string
	task   func(context.Context) (context.Context, func())
	beside func(context.Context) (context.Context, func())
	told   bool   // by ErrDeadlock: not where the holder is an implicit task, which may end by itself
	advice string // that fits
}{
	{"an implicit task", implicitly, unchanged, false, ""},
	{"outside of an implicit task", implicitly, outsideOf, false, ""},
	{"a new task in an implicit one", implicitly, pooldriver.NewTask, false, ""},
	{"an explicit task in an implicit one", implicitly, pooldriver.WithTask, false, ""},
	{"outside of a task", pooldriver.WithTask, outsideOf, true, "run the statement in the task around it"},
	{"a new task", pooldriver.WithTask, pooldriver.NewTask, true, "run the statement in the task around it"},
}

// TestAGoroutineBesideATransactionThatIsBusyElsewhereWaits: two requests, and two
// connections. Each has a transaction open while it calls a service for a second, and
// a goroutine beside it wants to write. Plain database/sql waits.
func TestAGoroutineBesideATransactionThatIsBusyElsewhereWaits(t *testing.T) {
	for _, s := range sided {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, db, _ := openTasks(t, 2)
				var begun, requests sync.WaitGroup
				begun.Add(2)
				for range 2 {
					requests.Go(func() {
						ctx, end := s.task(t.Context())
						defer end()
						tx, err := db.BeginTx(ctx, nil)
						begun.Done()
						if !assert.NoError(t, err) {
							return
						}
						begun.Wait()
						audit := make(chan error, 1)
						go func() {
							ctx, end := s.beside(ctx)
							defer end()
							_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
							audit <- err
						}()
						time.Sleep(time.Second) // the payment
						assert.NoError(t, tx.Commit())
						assert.NoError(t, <-audit)
					})
				}
				requests.Wait()
				require.Len(t, server.Table("t"), 2)
			})
		})
	}
}

func TestACycleIsToldByTheAlarmOrByTheTimeoutWithAdviceThatFits(t *testing.T) {
	for _, s := range sided {
		if !s.told {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for name, set := range map[string]pooldriver.Option{
					"alarm":         deadlockAfter(20 * time.Millisecond),
					"never":         deadlockAfter(0),
					"not that soon": deadlockAfter(5 * time.Second),
				} {
					_, db, c := openTasks(t, 1, set, func(c *pooldriver.Config) { c.AcquireTimeout = 500 * time.Millisecond })
					ctx, end := s.task(t.Context())
					defer end()
					tx, err := db.BeginTx(ctx, nil)
					require.NoError(t, err)
					beside, endBeside := s.beside(ctx)
					defer endBeside()
					_, err = db.BeginTx(beside, nil)
					require.ErrorContains(t, err, "pooldriver: no connection to ")
					require.ErrorContains(t, err, waitgraph.InCycle)
					require.ErrorContains(t, err, "; "+s.advice+", or raise pool_max_conns")
					require.ErrorContains(t, err, " (transaction, for ")
					if name == "alarm" {
						require.ErrorIs(t, err, pooldriver.ErrDeadlock)
					} else {
						require.NotErrorIs(t, err, pooldriver.ErrDeadlock)
						require.ErrorIs(t, err, pool.ErrTimeout)
					}
					require.NoError(t, tx.Commit())
					tx, err = db.BeginTx(beside, nil)
					require.NoError(t, err, "the cycle is over")
					require.NoError(t, tx.Rollback())
					require.Zero(t, lent(c))
				}
			})
		})
	}
}

// TestAnImplicitTaskGetsNoDeadlock: it waits as over plain database/sql, and the error of its timeout
// names the holder.
func TestAnImplicitTaskGetsNoDeadlock(t *testing.T) {
	for _, s := range sided {
		if s.told {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, db, _ := openTasks(t, 1, deadlockAfter(20*time.Millisecond), func(c *pooldriver.Config) { c.AcquireTimeout = 500 * time.Millisecond })
				ctx, end := s.task(pooldriver.Label(t.Context(), "the holder"))
				defer end()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				beside, endBeside := s.beside(ctx)
				defer endBeside()
				_, err = db.BeginTx(beside, nil)
				require.ErrorIs(t, err, pool.ErrTimeout)
				require.NotErrorIs(t, err, pooldriver.ErrDeadlock)
				require.ErrorContains(t, err, "the holder")
				require.NoError(t, tx.Commit())
			})
		})
	}
}

// TestTheAlarmComesWhenNothingHasMovedForLong: each statement of the holder's begins
// the time anew.
func TestTheAlarmComesWhenNothingHasMovedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const after = 600 * time.Millisecond
		_, db, _ := openTasks(t, 1, deadlockAfter(after))
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		moved := make(chan time.Time, 1)
		go func() {
			time.Sleep(after / 2)
			began := time.Now()
			_, _ = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			moved <- began
		}()
		_, err = db.ExecContext(pooldriver.Outside(ctx), "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock)
		require.GreaterOrEqual(t, time.Since(<-moved), after-(20*time.Millisecond))
		require.NoError(t, tx.Rollback())
	})
}

// TestWhoComesNewIntoACycleIsAMove: its task goes on.
func TestWhoComesNewIntoACycleIsAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const after = 600 * time.Millisecond
		_, db, _ := openTasks(t, 1, deadlockAfter(after))
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		first := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(pooldriver.Outside(ctx), "INSERT INTO t VALUES (1)")
			first <- err
		}()
		time.Sleep(after / 2)
		began := time.Now()
		_, err = db.ExecContext(pooldriver.Outside(ctx), "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock, "the one that came last")
		require.GreaterOrEqual(t, time.Since(began), after)
		require.NoError(t, tx.Commit())
		require.NoError(t, <-first)
	})
}

// TestAStatementOfNoTaskThatTimesOutIsToldOfTheCycle: it is what held it up.
func TestAStatementOfNoTaskThatTimesOutIsToldOfTheCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 1, deadlockAfter(0))
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		inner := make(chan error, 1)
		patient, cancel := context.WithCancel(pooldriver.Outside(ctx))
		go func() {
			_, err := db.ExecContext(patient, "INSERT INTO t VALUES (1)")
			inner <- err
		}()
		impatient, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		_, err = db.ExecContext(impatient, "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, waitgraph.InCycle+"; close rows, transactions and *sql.Conns before another connection is needed, or raise pool_max_conns")
		cancel()
		require.ErrorIs(t, <-inner, context.Canceled)

		// And of none where it is over.
		impatient, stop = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		_, err = db.ExecContext(impatient, "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), waitgraph.InCycle)
		require.NoError(t, tx.Rollback())
	})
}

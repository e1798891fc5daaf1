package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/pool"
)

// TestEachStatementWithoutAConnectionIsCountedByItsReason, and one that shares its task's
// connection in the end is not.
func TestEachStatementWithoutAConnectionIsCountedByItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, c := openStub(t, dialects.Traits{}, deadlockAfter(time.Second), func(c *pooldriver.Config) {
			c.AcquireTimeout, c.MaxWaiters, c.BreakerFailures = 10*time.Second, 1, 1
		})
		want := map[pooldriver.AcquireFailure]uint64{}
		for _, why := range []pooldriver.AcquireFailure{
			pooldriver.AcquireTimeout, pooldriver.AcquireGaveUp, pooldriver.AcquireCancelled, pooldriver.AcquireQueueFull, pooldriver.AcquireOverloaded, pooldriver.AcquireBreakerOpen,
			pooldriver.AcquireDialFailed, pooldriver.AcquireDeadlock, pooldriver.AcquireClosed,
		} {
			want[why] = 0
		}
		require.Equal(t, want, c.Stats().AcquireFailures)
		counted := func(why pooldriver.AcquireFailure) {
			t.Helper()
			want[why]++
			require.Equal(t, want, c.Stats().AcquireFailures)
		}

		refused := errors.New("refused")
		s.Server.Refuse(refused)
		c.Flush()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), refused)
		counted(pooldriver.AcquireDialFailed)
		require.ErrorIs(t, db.Ping(), pool.ErrUnavailable)
		counted(pooldriver.AcquireBreakerOpen)
		s.Server.Refuse(nil)
		time.Sleep(time.Hour)

		task, end := pooldriver.WithTask(t.Context())
		tx, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		beside, endBeside := pooldriver.NewTask(task)
		defer endBeside()
		_, err = db.ExecContext(beside, "INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock)
		counted(pooldriver.AcquireDeadlock)

		require.ErrorIs(t, db.Ping(), pool.ErrTimeout)
		counted(pooldriver.AcquireTimeout)

		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- db.PingContext(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), pool.ErrTooManyWaiters)
		counted(pooldriver.AcquireQueueFull)
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)
		counted(pooldriver.AcquireCancelled)
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, db.PingContext(soon), context.DeadlineExceeded)
		counted(pooldriver.AcquireGaveUp)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // as a proxy does, or a browser
		require.ErrorIs(t, db.PingContext(ctx), context.Canceled)
		counted(pooldriver.AcquireGaveUp)

		require.NoError(t, tx.Rollback())
		end()
		require.NoError(t, c.Close())
		late := sql.OpenDB(c)
		require.ErrorIs(t, late.Ping(), pool.ErrClosed)
		counted(pooldriver.AcquireClosed)
		require.NoError(t, late.Close())
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestAWaitInVainIsShownWithItsTime: whatever ends the wait.
func TestAWaitInVainIsShownWithItsTime(t *testing.T) {
	const patience = 5 * time.Second
	for name, tc := range map[string]struct {
		err  error
		ends func(c *pooldriver.Connector, cancel context.CancelFunc) // called after patience; nil: the pool ends the wait
		task bool                                                     // the statement's task was made in the task that has the connection
	}{
		"a wait cycle":        {err: pooldriver.ErrDeadlock, task: true},
		"the acquire timeout": {err: pooldriver.ErrTimeout},
		"a cancelled context": {err: context.Canceled, ends: func(_ *pooldriver.Connector, cancel context.CancelFunc) { cancel() }},
		"Close":               {err: pooldriver.ErrClosed, ends: func(c *pooldriver.Connector, _ context.CancelFunc) { go c.Close() }},
		"Close, in a task":    {err: pooldriver.ErrClosed, task: true, ends: func(c *pooldriver.Connector, _ context.CancelFunc) { go c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n notes
				_, db, c := openStub(t, dialects.Traits{}, n.option, func(c *pooldriver.Config) {
					c.AcquireTimeout, c.DeadlockAfter = time.Hour, time.Hour
					switch tc.err {
					case pooldriver.ErrDeadlock:
						c.DeadlockAfter = patience
					case pooldriver.ErrTimeout:
						c.AcquireTimeout = patience
					}
				})
				task, end := pooldriver.WithTask(t.Context())
				defer end()
				tx, err := db.BeginTx(task, nil)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.task {
					var endBeside func()
					ctx, endBeside = pooldriver.NewTask(task)
					defer endBeside()
				}
				before := c.Stats().Wait
				if tc.ends != nil {
					time.AfterFunc(patience, func() { tc.ends(c, cancel) })
				}
				_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
				require.ErrorIs(t, err, tc.err)
				after := c.Stats().Wait
				require.Equal(t, before.Count+1, after.Count)
				require.InDelta(t, patience, after.Sum-before.Sum, float64(pool.DefaultStarveAfter))
				told := n.acquires[len(n.acquires)-1]
				require.ErrorIs(t, told.Err, tc.err)
				require.InDelta(t, patience, told.Wait, float64(pool.DefaultStarveAfter))
				require.NoError(t, tx.Rollback())
				require.NoError(t, db.Close())
				synctest.Wait()
			})
		})
	}
}

func TestTheHighestUseStaysInTheFiguresWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openStub(t, dialects.Traits{}, maxConns(5))
		var open []*sql.Tx
		for range 3 {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			open = append(open, tx)
		}
		require.Equal(t, 3, c.Stats().Peak)
		for _, tx := range open {
			require.NoError(t, tx.Rollback())
		}
		require.NoError(t, db.PingContext(t.Context()))
		require.Equal(t, 3, c.Stats().Peak)
	})
}

// TestTheTimeOfWhatFailsIsNotUsual: a lock that times out again and again does not become its own measure.
func TestTheTimeOfWhatFailsIsNotUsual(t *testing.T) {
	server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.SampleStacks = 1 })
	usual := func(text string) (usual time.Duration, runs uint64) {
		for _, s := range c.Statements(time.Time{}) {
			if s.Statement == text {
				return s.Usual, s.Runs
			}
		}
		return 0, 0
	}
	require.Eventually(t, func() bool {
		mustExec(t, t.Context(), db, "SELECT 1")
		server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "SELECT 1, 2", Err: errors.New("lock timeout")})
		_, err := db.ExecContext(t.Context(), "SELECT 1, 2")
		require.Error(t, err)
		_, runs := usual("SELECT ?, ?")
		known, _ := usual("SELECT ?")
		return known > 0 && runs > 100
	}, 2*time.Minute, time.Millisecond)
	failing, _ := usual("SELECT ?, ?")
	require.Zero(t, failing)
}

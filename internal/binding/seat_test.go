package binding

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// newEngine makes an engine over a fake database.
func newEngine(t *testing.T, most int) *Engine {
	t.Helper()
	return newEngineOver(t, most, stubdialect.New(dialects.Traits{}), slog.DiscardHandler)
}

func newEngineOver(t *testing.T, most int, s *stubdialect.Stub, log slog.Handler) *Engine {
	t.Helper()
	stubdialect.Connector(s)
	var r report.Report
	r.Init(slog.New(log), "stub", most, report.Listener{})
	c := &config.Config{
		Dialect: s, MaxConns: most, NestedBuffer: 1 << 20, NestedBufferTotal: 1 << 20, NestedBufferOthers: 1 << 20,
		ConnectTimeout: time.Second, CleanTimeout: time.Second, PingTimeout: time.Second, IdleTimeout: time.Second,
	}
	e, err := New(c, s, &usage.Env{Config: c, Clock: usage.NewClock()}, &r)
	require.NoError(t, err)
	t.Cleanup(e.Pool().Close)
	return e
}

// reached is a checkout without a task that has a connection.
func reached(t *testing.T, ctx context.Context, e *Engine) *Checkout {
	t.Helper()
	c, w := &Checkout{}, &Want{}
	c.Init(e, ctx)
	require.NoError(t, c.Reach(ctx, w))
	c.Done(w)
	t.Cleanup(c.Detach)
	return c
}

// TestALookNeedsTheConnectionAndTheLock: what was lent to others meanwhile is left alone.
func TestALookNeedsTheConnectionAndTheLock(t *testing.T) {
	e := newEngine(t, 2)
	a, b := reached(t, t.Context(), e), reached(t, t.Context(), e)
	held, other := a.seat.conn.Load(), b.seat.conn.Load()
	require.False(t, a.seat.tryLook(other))
	require.True(t, a.seat.lock.TryLock(), "it was left unlocked")
	require.False(t, a.seat.tryLook(held), "somebody works on it")
	a.seat.lock.Unlock()
	require.True(t, a.seat.tryLook(held))
	a.seat.unlock(none)
	require.True(t, a.seat.Has(held))
}

// TestWhoeverEndsTheLastClaimOrHasTheLockGivesBack, and nobody waits: the checkout has ended while
// somebody looked.
func TestWhoeverEndsTheLastClaimOrHasTheLockGivesBack(t *testing.T) {
	for name, ctx := range map[string]context.Context{"without a task": t.Context(), "in a task": newTask(t)} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, 1)
			c := &Checkout{}
			c.Init(e, ctx)
			for range 100 {
				w := &Want{}
				require.NoError(t, c.Reach(ctx, w))
				c.Done(w)
				s := c.seat
				require.True(t, s.tryLook(s.conn.Load()))
				c.Detach()
				require.Equal(t, 1, e.Pool().Stats().Lent, "somebody has the lock")
				s.unlock(none)
				require.Equal(t, 1, e.Pool().Stats().Idle)
			}
			var all sync.WaitGroup
			for range 2 { // at the same time
				all.Go(func() {
					for range 2_000 {
						for _, r := range e.pool.Conns() {
							if s := seatOf(r); s.tryLook(r) {
								s.unlock(none)
							}
						}
					}
				})
			}
			loop(t, ctx, e, 2_000)
			all.Wait()
			require.Equal(t, 1, e.Pool().Stats().Idle)
		})
	}
}

// TestAStatementThatGivesUpItsLockAsItGetsItKeepsNobody: a checkout that ends meanwhile gives
// its connection back.
func TestAStatementThatGivesUpItsLockAsItGetsItKeepsNobody(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	for range 200 {
		c := &Checkout{}
		c.Init(e, ctx)
		w := &Want{}
		require.NoError(t, c.Reach(ctx, w))
		c.Done(w)
		s, b := c.seat, c.binding
		require.NoError(t, s.lock.Lock(ctx))
		impatient, cancel := context.WithCancel(ctx)
		var both sync.WaitGroup
		require.True(t, b.countIn(s))
		both.Go(func() {
			if s.lock.Lock(impatient) == nil {
				s.release(op)
			} else {
				s.leave(op)
			}
		})
		require.Eventually(t, s.lock.Contended, 30*time.Second, 10*time.Microsecond)
		both.Go(cancel)
		both.Go(c.Detach)
		s.unlock(none)
		both.Wait()
		require.Equal(t, 1, e.Pool().Stats().Idle)
	}
}

// inTask is a checkout of the task of ctx that has run an operation.
func inTask(t *testing.T, ctx context.Context, e *Engine) *Checkout {
	t.Helper()
	c := reached(t, ctx, e)
	require.True(t, c.InTask())
	return c
}

// newTask is a context with an explicit task.
func newTask(t *testing.T) context.Context {
	t.Helper()
	ctx, end := task.With(t.Context())
	t.Cleanup(end)
	return ctx
}

// waiting starts an operation that needs a connection of e, and returns when it waits as
// the n-th of b. had is set before the operation unlocks its connection.
func waiting(t *testing.T, ctx context.Context, e *Engine, b *Binding, n int32) (got chan error, had *atomic.Bool) {
	t.Helper()
	got, had = make(chan error, 1), &atomic.Bool{}
	go func() {
		c, w := &Checkout{}, &Want{}
		c.Init(e, ctx)
		err := c.Reach(ctx, w)
		had.Store(true)
		c.Done(w)
		c.Detach()
		got <- err
	}()
	require.Eventually(t, func() bool { return b.waiting.Load() == n && e.Pool().Stats().Waiting >= int(n) }, 30*time.Second, time.Millisecond)
	return got, had
}

// TestASessionIsHandedToTheStatementThatWaits: between the end of an operation and the turn of the
// statement that waits, nobody else can take the session.
func TestASessionIsHandedToTheStatementThatWaits(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := inTask(t, ctx, e)
	s, b := c.seat, c.binding
	for range 200 {
		w := &Want{}
		require.NoError(t, c.Reach(ctx, w))
		got, had := waiting(t, ctx, e, b, 1)
		c.Done(w)
		require.NoError(t, c.Reach(ctx, w))
		require.True(t, had.Load(), "it was overtaken")
		c.Done(w)
		require.NoError(t, <-got)
		require.EqualValues(t, 1, s.users.Load())
		require.Zero(t, s.ops.Load())
	}
}

// TestAStatementThatLeavesPassesTheSessionOn: what was handed to a statement whose context ends is
// the next one's.
func TestAStatementThatLeavesPassesTheSessionOn(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := inTask(t, ctx, e)
	for i := range 200 {
		w := &Want{}
		require.NoError(t, c.Reach(ctx, w))
		leaving, leave := context.WithCancel(ctx)
		first, _ := waiting(t, leaving, e, c.binding, 1)
		second, _ := waiting(t, ctx, e, c.binding, 2)
		if i%2 == 0 {
			go leave()
		}
		c.Done(w)
		if err := <-first; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, <-second)
		leave()
	}
	require.Zero(t, c.seat.ops.Load())
}

// TestNoStatementOfATaskMissesItsTurn: statements that come at any time get the only session, and
// none waits for ever, while others look at the session. No claim is left on it.
func TestNoStatementOfATaskMissesItsTurn(t *testing.T) {
	for name, held := range map[string]bool{"a checkout keeps the session": true, "it comes and goes": false} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, 1)
			ctx, cancel := context.WithTimeout(newTask(t), time.Minute)
			defer cancel()
			c := reached(t, ctx, e)
			s, b := c.seat, c.binding
			if !held {
				c.Detach()
			}
			var all, peeking sync.WaitGroup
			var done atomic.Bool
			peeking.Go(func() {
				for !done.Load() {
					for _, s := range b.all() {
						if b.tryHold(s) {
							s.release(op)
						}
					}
				}
			})
			for range 4 {
				all.Go(func() { loop(t, ctx, e, 3_000) })
			}
			all.Wait()
			done.Store(true)
			peeking.Wait()
			if held {
				require.EqualValues(t, 1, s.users.Load())
				c.Detach()
			}
			require.Empty(t, b.all())
			require.Zero(t, b.waiting.Load())
			require.Zero(t, b.held.Load())
			require.Eventually(t, func() bool { return e.Pool().Stats().Idle == 1 }, 30*time.Second, time.Millisecond)
		})
	}
}

// loop makes n checkouts of one operation each.
func loop(t *testing.T, ctx context.Context, e *Engine, n int) {
	c := &Checkout{}
	c.Init(e, ctx)
	for range n {
		var w Want
		if !assert.NoError(t, c.Reach(ctx, &w)) {
			return
		}
		c.Done(&w)
		c.Detach()
	}
}

// TestThoseWhoWaitForTheLockHaveTheirTurn: statements that come all the time for any connection of
// the task do not keep a checkout from its own one.
func TestThoseWhoWaitForTheLockHaveTheirTurn(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := inTask(t, ctx, e)
	others, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			o := &Checkout{}
			o.Init(e, others)
			for others.Err() == nil {
				var w Want
				if o.Reach(others, &w) == nil {
					time.Sleep(100 * time.Microsecond) // the driver works
				}
				o.Done(&w)
				o.Detach()
			}
		})
	}
	for range 200 {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		var w Want
		err := c.Reach(limited, &w)
		c.Done(&w)
		cancel()
		if !assert.NoError(t, err) {
			break
		}
	}
	stop()
	all.Wait()
}

// TestAnOperationThatStandsDownKeepsTheSessionUntilItsEnd: the last user that leaves meanwhile does
// not give back a session on which the operation still works.
func TestAnOperationThatStandsDownKeepsTheSessionUntilItsEnd(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	first, second := inTask(t, ctx, e), inTask(t, ctx, e)
	s, b := first.seat, first.binding
	require.Same(t, s, second.seat, "they share the only one")
	w := &Want{}
	require.NoError(t, first.Reach(ctx, w))
	first.StandDown(w)
	second.Detach()
	require.NotNil(t, s.conn.Load())
	require.Zero(t, e.Pool().Stats().Idle)
	first.Done(w)
	require.Nil(t, s.conn.Load())
	require.Equal(t, 1, e.Pool().Stats().Idle)
	require.Zero(t, b.held.Load())
}

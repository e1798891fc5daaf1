package binding

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stubdialect"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/usage"
)

// newEngine makes an engine over a fake database.
func newEngine(t *testing.T, most int) *Engine {
	t.Helper()
	s := stubdialect.New(dialects.Traits{})
	stubdialect.Connector(s)
	var r report.Report
	r.Init(slog.New(slog.DiscardHandler), "stub", 1, report.Listener{})
	e, err := New(Config{Pool: connpool.Config{
		Dialect: s, Template: s, Usage: &usage.Env{Clock: usage.NewClock()},
		Session: session.Env{Dialect: s, Buffered: &r.Buffered, ReadAheads: &r.ReadAheads, CleanTimeout: time.Second, PingTimeout: time.Second, IdleTimeout: time.Second},
		Limits:  connpool.Limits{Max: most, ConnectTimeout: time.Second, CleanTimeout: time.Second, PingTimeout: time.Second},
	}}, &r)
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

// TestABindingPeeksAtItsOwnSessionsAlone: what has gone to another one in the meantime is
// neither locked nor kept.
func TestABindingPeeksAtItsOwnSessionsAlone(t *testing.T) {
	e := newEngine(t, 2)
	a, b := reached(t, t.Context(), e), reached(t, t.Context(), e)
	own, held, other := a.binding, a.conn, b.conn
	require.NotSame(t, own, other.holder.Load())
	require.False(t, own.tryPeek(other))
	require.True(t, other.TryLock(), "it was left unlocked")
	require.Zero(t, other.use.peeks)
	require.False(t, other.holder.Load().tryPeek(other), "somebody works on it")
	require.Zero(t, other.use.peeks)
	other.Unlock()
	require.True(t, own.tryPeek(held))
	require.Equal(t, 1, held.use.peeks)
	own.endPeek(held)
	require.Zero(t, held.use.peeks)
}

// TestATransactionOfInTxThatHasLeftItsConnectionIsDone: a statement in its scope does not look for it
// for ever.
func TestATransactionOfInTxThatHasLeftItsConnectionIsDone(t *testing.T) {
	e := newEngine(t, 1)
	scope := task.NewScope(newTask(t))
	c, w := &Checkout{}, &Want{}
	c.Init(e, scope)
	require.NoError(t, c.Reach(scope, w))
	c.Done(w)
	tx := &Tx{}
	tx.On(c, c.conn)
	scope.Begun(tx)
	c.Detach()
	ctx, cancel := context.WithTimeout(scope, time.Second)
	defer cancel()
	other := &Checkout{}
	other.Init(e, ctx)
	require.ErrorIs(t, other.Reach(ctx, &Want{}), sql.ErrTxDone)
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
	require.Eventually(t, func() bool { return b.waiting.Load() == n && e.Pool().Stats().Waiting >= int(n) }, 5*time.Second, time.Millisecond)
	return got, had
}

// TestASessionIsHandedToTheStatementThatWaits: between the end of an operation and the turn of the
// statement that waits, nobody else can take the session.
func TestASessionIsHandedToTheStatementThatWaits(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := inTask(t, ctx, e)
	r, b := c.conn, c.binding
	for range 200 {
		w := &Want{}
		require.NoError(t, c.Reach(ctx, w))
		got, had := waiting(t, ctx, e, b, 1)
		c.Done(w)
		require.NoError(t, c.Reach(ctx, w))
		require.True(t, had.Load(), "it was overtaken")
		c.Done(w)
		require.NoError(t, <-got)
		require.Equal(t, 1, r.use.users)
		require.Zero(t, r.use.peeks)
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
	require.Zero(t, c.conn.use.peeks)
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
			r, b := c.conn, c.binding
			if !held {
				c.Detach()
			}
			var all, peeking sync.WaitGroup
			var done atomic.Bool
			peeking.Go(func() {
				for !done.Load() {
					if b.tryPeek(r) {
						b.release(r, true)
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
				require.Equal(t, 1, r.use.users)
				c.Detach()
			}
			require.Zero(t, r.use.users)
			require.Zero(t, r.use.peeks)
			require.Zero(t, b.waiting.Load())
			require.Zero(t, b.held.Load())
			require.Eventually(t, func() bool { return e.Pool().Stats().Idle == 1 }, 5*time.Second, time.Millisecond)
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
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
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
	r, b := first.conn, first.binding
	require.Same(t, r, second.conn, "they share the only one")
	w := &Want{}
	require.NoError(t, first.Reach(ctx, w))
	first.StandDown(w)
	second.Detach()
	require.Same(t, b, r.holder.Load())
	require.Zero(t, e.Pool().Stats().Idle)
	first.Done(w)
	require.Nil(t, r.holder.Load())
	require.Equal(t, 1, e.Pool().Stats().Idle)
	require.Zero(t, b.held.Load())
}

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
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// begun is a checkout of ctx that has run an operation. The test ends it.
func begun(t *testing.T, ctx context.Context, e *Engine) *Checkout {
	t.Helper()
	c := &Checkout{}
	c.Init(e, ctx)
	w := &Want{}
	require.NoError(t, c.Reach(ctx, w))
	c.Done(w)
	return c
}

// withRows has c open rows, with which nothing else has happened in c.
func withRows(t *testing.T, ctx context.Context, c *Checkout) *Rows {
	t.Helper()
	w := &Want{Statement: session.Statement{Text: "SELECT n FROM numbers LIMIT 3", Queries: true}}
	require.NoError(t, c.Reach(ctx, w))
	_, err := w.Conn.Session.Run(ctx, &w.Statement)
	require.NoError(t, err)
	rows := &Rows{}
	c.Open(rows, &w.Statement, true)
	c.Done(w)
	return rows
}

// TestTheLastClaimMayEndWhileSomebodyWithoutOneHasTheLock: he gives the connection back.
func TestTheLastClaimMayEndWhileSomebodyWithoutOneHasTheLock(t *testing.T) {
	// each has what happens to a checkout at the same moment, and how the checkout ends.
	for name, each := range map[string]func(t *testing.T, ctx context.Context, e *Engine) (one, other func()){
		"a function of Raw whose *sql.Conn is closed": func(t *testing.T, ctx context.Context, e *Engine) (one, other func()) {
			c := begun(t, ctx, e)
			w := &Want{Lends: true}
			require.NoError(t, c.Reach(ctx, w))
			l, err := Lend(c, w)
			require.NoError(t, err)
			c.Done(w)
			return func() { l.EndWithoutLock(nil) }, c.Detach
		},
		"the driver closes what was prepared": func(t *testing.T, ctx context.Context, e *Engine) (one, other func()) {
			c := begun(t, ctx, e)
			s := c.seat
			return func() { _ = c.Disown(&stmtcache.Owner{}) }, func() {
				s.Detached() // as if its rows were in memory
				s.recheck()
			}
		},
		"the end of a checkout whose rows others read": func(t *testing.T, ctx context.Context, e *Engine) (one, other func()) {
			c := begun(t, ctx, e)
			s := c.seat
			return func() {
					if s.hold() != nil {
						s.release(none)
					}
				}, func() {
					s.Detached()
					s.recheck()
				}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, 1)
			ctx := newTask(t)
			for range 3_000 {
				one, other := each(t, ctx, e)
				var both sync.WaitGroup
				both.Go(one)
				both.Go(other)
				both.Wait()
				require.Eventually(t, func() bool { return e.Pool().Stats().Lent == 0 }, 30*time.Second, 10*time.Microsecond)
			}
		})
	}
}

// TestAStatementThatDoesNotRunKeepsNoRows of its own checkout, which were read into memory while it waited for
// the lock.
func TestAStatementThatDoesNotRunKeepsNoRows(t *testing.T) {
	for name, stop := range map[string]func(b *Binding, s *Seat, cancel func()){
		"its context ends":        func(_ *Binding, _ *Seat, cancel func()) { cancel() },
		"its task has lost state": func(b *Binding, s *Seat, _ func()) { b.raiseBarrier(s.conn.Load().Session.LostState("", time.Now())) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, 1)
			for range 1_000 {
				ctx, end := task.With(t.Context())
				c := &Checkout{}
				c.Init(e, ctx)
				rows := withRows(t, ctx, c)
				held, read := tryReclaim(c.seat.conn.Load())
				require.NotNil(t, read)
				impatient, cancel := context.WithCancel(ctx)
				var both sync.WaitGroup
				both.Go(func() {
					w := &Want{}
					_ = c.Reach(impatient, w)
					c.Done(w)
				})
				require.Eventually(t, held.lock.Contended, 30*time.Second, 10*time.Microsecond)
				stop(c.binding, held, func() { both.Go(cancel) })
				require.True(t, e.starvation.takeRows(held, read))
				both.Wait()
				_, err := rows.Close()
				require.NoError(t, err)
				c.Detach()
				require.Eventually(t, func() bool { return e.Pool().Stats().Lent == 0 }, 30*time.Second, 10*time.Microsecond)
				cancel()
				end()
			}
		})
	}
}

// TestACheckoutWhoseRowsWereTakenDoesNotUseItsSeatAgain: others of the task may have a claim on it.
func TestACheckoutWhoseRowsWereTakenDoesNotUseItsSeatAgain(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := &Checkout{}
	c.Init(e, ctx)
	defer c.Detach()
	rows := withRows(t, ctx, c)
	s := c.seat
	other := inTask(t, ctx, e) // reads the rows into memory, and has the seat
	require.Same(t, s, other.seat)
	require.NotNil(t, rows.Rows.Buffer())
	w := &Want{}
	require.NoError(t, other.Reach(ctx, w))
	w.Conn.Session.MarkUnusable()
	other.Done(w)
	require.Nil(t, s.conn.Load(), "it was dead")
	w = &Want{}
	require.NoError(t, c.Reach(ctx, w))
	c.Done(w)
	require.NotSame(t, s, c.seat)
	require.Error(t, other.Reach(ctx, &Want{}), "its connection has died")
}

// TestASeatThatATransactionKnowsIsNotUsedAgain, by whatever checkout it has begun.
func TestASeatThatATransactionKnowsIsNotUsedAgain(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	first, second := begun(t, ctx, e), begun(t, ctx, e)
	s, b := first.seat, first.binding
	require.Same(t, s, second.seat)
	var tx Tx
	tx.On(second)
	second.Detach()
	first.Detach()
	require.Nil(t, s.conn.Load())
	inner, cancel := context.WithTimeout(newTask(t), time.Minute)
	defer cancel()
	w := &Want{Begins: true}
	require.NoError(t, first.Reach(inner, w))
	first.Done(w)
	defer first.Detach()
	require.ErrorIs(t, tx.lock(), sql.ErrTxDone)
	require.NotSame(t, s, first.seat)
	require.Nil(t, b.main.Load())
}

// TestNothingOfASeatsLastLendingIsLeft: a later transaction would say that it has been open since then.
func TestNothingOfASeatsLastLendingIsLeft(t *testing.T) {
	e := newEngine(t, 1)
	ctx := newTask(t)
	c := begun(t, ctx, e)
	s := c.seat
	require.NoError(t, s.lock.Lock(ctx))
	s.begin()
	s.lock.Unlock()
	c.Detach()
	require.Zero(t, s.since)
}

// TestASeatMayGoFromTaskToTaskWhileOthersLookAtIt: they do not take one task for the other.
func TestASeatMayGoFromTaskToTaskWhileOthersLookAtIt(t *testing.T) {
	e := newEngine(t, 1)
	var all, looks sync.WaitGroup
	var done atomic.Bool
	looks.Go(func() {
		for !done.Load() {
			for _, r := range e.pool.Conns() {
				if s := seatOf(r); s.tryLook(r) {
					s.unlock(none)
				}
			}
		}
	})
	one, two := newTask(t), newTask(t)
	c := &Checkout{}
	c.Init(e, nil)
	all.Go(func() {
		for range 3_000 {
			for _, ctx := range []context.Context{t.Context(), one, two} {
				w := &Want{}
				if c.Reach(ctx, w) == nil {
					c.Done(w)
				}
				c.Detach()
			}
		}
	})
	all.Wait()
	done.Store(true)
	looks.Wait()
	require.Zero(t, e.Pool().Stats().Lent)
}

// TestATransactionThatOutlivesItsCheckoutIsDone: a wrapper above us may end it later. The checkout has another
// connection then.
func TestATransactionThatOutlivesItsCheckoutIsDone(t *testing.T) {
	e := newEngine(t, 1)
	c := begun(t, t.Context(), e)
	tx := &Tx{}
	tx.On(c)
	tx.begun()
	c.Detach()
	w := &Want{}
	require.NoError(t, c.Reach(t.Context(), w))
	c.Done(w)
	defer c.Detach()
	require.ErrorIs(t, tx.lock(), sql.ErrTxDone)
}

// TestASeatIsATasksWhileItIsInTheTasksList: somebody late may read the connection of one lending and the binding
// of the next one, which has no connection yet.
func TestASeatIsATasksWhileItIsInTheTasksList(t *testing.T) {
	e := newEngine(t, 2)
	ctx := newTask(t)
	b := inTask(t, ctx, e).binding
	late := reached(t, t.Context(), e).seat
	own := late.binding.Load()
	late.binding.Store(b)
	defer late.binding.Store(own)
	require.False(t, b.countIn(late))
	require.Zero(t, late.ops.Load())
	late.recheck()
	require.NotNil(t, late.conn.Load())
}

// TestHoldersDoNotTakeOneTaskForTheOther while a seat has the same connection for one after the other.
func TestHoldersDoNotTakeOneTaskForTheOther(t *testing.T) {
	e := newEngine(t, 1)
	c := &Checkout{}
	c.Init(e, nil)
	users := map[string]context.Context{}
	for _, label := range []string{"one", "two"} {
		ctx, end := task.With(task.Label(t.Context(), label))
		defer end()
		users[label] = ctx
	}
	var done atomic.Bool
	var looks sync.WaitGroup
	looks.Go(func() {
		for !done.Load() {
			for _, l := range e.Looks() {
				if label := usage.Text(l.Label); !assert.Equal(t, label, l.Task.Label()) {
					return
				}
			}
		}
	})
	for range 5_000 {
		for _, ctx := range users {
			w := &Want{}
			require.NoError(t, c.Reach(ctx, w))
			c.Done(w)
			c.Detach()
		}
	}
	done.Store(true)
	looks.Wait()
}

// TestATaskThatEndsDuringTheWaitSaysSo, also in a transaction of InTx.
func TestATaskThatEndsDuringTheWaitSaysSo(t *testing.T) {
	e := newEngine(t, 1)
	scope := task.NewScope(newTask(t))
	c := begun(t, scope, e)
	defer c.Detach()
	s, b := c.seat, c.binding
	tx := &Tx{}
	tx.On(c)
	scope.Begun(began{tx})
	require.NoError(t, s.lock.Lock(t.Context()))
	waits := make(chan error)
	go func() {
		other := &Checkout{}
		other.Init(e, scope)
		waits <- other.Reach(scope, &Want{})
	}()
	require.Eventually(t, s.lock.Contended, 30*time.Second, time.Millisecond)
	b.TaskEnded()
	b.evict(s)
	require.EqualError(t, <-waits, b.task.EndedError().Error())
}

// TestATransactionOfInTxThatHasLeftItsSeatIsDone: a statement in its scope does not look for it for ever.
func TestATransactionOfInTxThatHasLeftItsSeatIsDone(t *testing.T) {
	e := newEngine(t, 1)
	scope := task.NewScope(newTask(t))
	c := begun(t, scope, e)
	tx := &Tx{}
	tx.On(c)
	scope.Begun(began{tx})
	c.Detach()
	ctx, cancel := context.WithTimeout(scope, time.Minute)
	defer cancel()
	other := &Checkout{}
	other.Init(e, ctx)
	require.ErrorIs(t, other.Reach(ctx, &Want{}), sql.ErrTxDone)
}

// logger runs a function of the program.
type logger struct {
	slog.Handler
	told func()
}

func (l logger) Enabled(context.Context, slog.Level) bool { return true }
func (l logger) Handle(context.Context, slog.Record) error {
	l.told()
	return nil
}

// TestNobodyHasTheLockWhenTheLogIsToldOfAPanic: the logger may need the connection.
func TestNobodyHasTheLockWhenTheLogIsToldOfAPanic(t *testing.T) {
	stub := stubdialect.New(dialects.Traits{})
	var s *Seat
	told := false
	e := newEngineOver(t, 1, stub, logger{slog.DiscardHandler, func() { told = true; require.False(t, s.lock.Locked()) }})
	c := &Checkout{}
	c.Init(e, t.Context())
	defer c.Detach()
	withRows(t, t.Context(), c)
	s = c.seat
	stub.Server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Panic: "boom"})
	held, rows := tryReclaim(s.conn.Load())
	require.NotNil(t, held)
	require.False(t, e.starvation.takeRows(held, rows))
	require.True(t, told)
}

// began stands in for a virtual transaction.
type began struct{ t *Tx }

func (b began) Held() *Tx { return b.t }

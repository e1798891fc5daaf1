package binding

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file alone decides which session serves an operation; claim.go decides when it goes back.
//
// Every checkout has a binding. Without a task the binding is private: it has one
// seat, nothing pins that seat beyond the checkout, and the checkout behaves
// as over plain database/sql.
//
// In a task every seat belongs to the task's binding, and one statement at a time
// uses it. While nothing pins a seat, each checkout of the task takes a connection from
// the pool. The first statement that needs a session (it begins a transaction or sets
// state) makes its seat the main one. From then on every statement of the task uses
// the main seat, until nothing pins it. If the pool has no free connection, a
// statement shares a seat that its task has already. The rows that are open on that
// seat are read into memory first. A task without a seat waits in the pool's
// queue. So a task that holds a connection waits for another one only if a statement
// cannot share.
//
// An implicit task shares nothing, unless Config.Ambient says so: its checkouts use their seats
// as without a task, and no seat is the main one. The binding knows the seats only for
// the task's end.

// Binding is the set of seats that a task has on one connector. Without a task, each
// checkout has a private binding.
type Binding struct {
	engine *Engine
	task   *task.Task // nil: the binding is private
	shares bool       // its checkouts share connections: the task is explicit, or Config.Ambient is not Auto

	// main is the task's seat while something pins the seat. It changes under the lock of
	// the seat that is, or was, the main one.
	main atomic.Pointer[Seat]
	// lossBarrier is the error of the task's statements after the task has lost a
	// transaction or state that they relied on. nil: nothing is lost.
	lossBarrier atomic.Pointer[session.LostError]
	ended       atomic.Bool
	rolledBack  atomic.Bool  // a transaction was open at the task's end
	held        atomic.Int32 // connections lent to the task, or on their way to it
	checkouts   atomic.Int32 // checkouts of the task that have not ended
	open        atomic.Int32 // rows that the task's statements have opened and not closed, in memory or not

	// mu protects the list of seats, the claims on each, the pin that keeps a seat, and the arrival
	// and departure of a connection. It is held for some nanoseconds, and never while anything
	// waits. Order: a seat's lock, then mu.
	mu      sync.Mutex
	seats   []*Seat      // the seats that have a connection
	few     [1]*Seat     // the memory of seats, enough for most tasks
	waiters []*waiter    // statements of the task that wait for a connection, in their order
	waiting atomic.Int32 // len(waiters)
}

var _ task.Member = (*Binding)(nil)

// TaskEnded makes the binding refuse statements from now on. WrapUp follows.
func (b *Binding) TaskEnded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended.Store(true)
}

func (b *Binding) isPrivate() bool { return b.task == nil }

// Holds reports whether the binding has connections that its checkouts share.
func (b *Binding) Holds() bool { return b.shares && b.held.Load() > 0 && !b.ended.Load() }

// enter finds the seat for an operation of the task, and locks it.
func (b *Binding) enter(ctx context.Context, c *Checkout, w *Want) error {
	for {
		again, err := b.lockTarget(ctx, c, w)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		if again, err = b.settle(ctx, c, w); err != nil || again {
			c.Unlock(w)
			if err != nil {
				return err
			}
			continue
		}
		if busy := w.seat.raw; busy != nil {
			c.Unlock(w)
			if err := b.awaitRaw(ctx, busy); err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// lockTarget locks the seat that seems to be the right one for an operation. again: its connection
// has left.
func (b *Binding) lockTarget(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	if err := b.refuses(c, w); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.partFromRows()
	if s := b.target(c); s != nil {
		return b.lockFor(ctx, c, w, s)
	}
	return false, b.obtain(ctx, c, w)
}

// lockFor locks s for an operation of c. If c does not use s yet, the operation is counted until c uses
// it. again: the connection of s has left.
func (b *Binding) lockFor(ctx context.Context, c *Checkout, w *Want, s *Seat) (again bool, _ error) {
	own := none
	if s != c.seat {
		own = op
	}
	if own == none || b.countIn(s) {
		if err := s.lock.Lock(ctx); err != nil {
			s.leave(own) // the rows of c may be in memory, or ctx has ended when the lock was just given to this operation
			return false, err
		}
		if s.conn.Load() != nil {
			w.has(s, own)
			return false, nil
		}
		s.lock.Unlock()
	}
	switch tx := b.transactionOf(c.scope); {
	case b.refuses(c, w) != nil || c.seat == s && c.rowsDetached():
		return true, nil // enter asks again
	case tx != nil && tx.seat == s:
		return false, sql.ErrTxDone // the transaction of InTx has ended before its function
	case c.seat == s:
		return false, driver.ErrBadConn // the connection has died
	}
	return true, nil
}

// refuses returns the error of an operation that must not run now, or not any more.
func (b *Binding) refuses(c *Checkout, w *Want) error {
	if b.ended.Load() {
		return b.task.EndedError()
	}
	if c.scope.Left() {
		return sql.ErrTxDone
	}
	// A BeginTx passes the loss barrier unless the barrier is final. So do the statements
	// of a *sql.Tx, because checkTx reports what that transaction has lost.
	if f := b.lossBarrier.Load(); f != nil && (f.Final() || !w.Begins && c.tx == nil) {
		return f
	}
	return nil
}

// raiseBarrier has the task's statements fail from now on, because of what was lost.
func (b *Binding) raiseBarrier(loss *session.LostError) { b.lossBarrier.Store(loss) }

// lowerBarrier removes the loss barrier unless it is final. A transaction has begun, so
// the program knows that the last one is gone.
func (b *Binding) lowerBarrier() {
	if f := b.lossBarrier.Load(); f != nil && !f.Final() {
		b.lossBarrier.CompareAndSwap(f, nil)
	}
}

// target returns the seat for an operation of c: that of its InTx, else the main
// seat, else the seat that c has. nil: c takes a connection from the pool. target does not
// hold the seat's lock; settle checks the answer under the lock.
func (b *Binding) target(c *Checkout) *Seat {
	var to *Seat
	if tx := b.transactionOf(c.scope); tx != nil {
		to = tx.seat
	} else if main := b.main.Load(); b.callsToMain(main, c) {
		to = main
	} else {
		return c.seat
	}
	if c.seat != nil && c.seat != to {
		c.leaveSeat() // may wait for a lock, so main may have changed
		return b.target(c)
	}
	return to
}

// settle checks, under the lock of w's seat, that it is the right one for the operation,
// and prepares it. again: it is not the right one, or not any more.
func (b *Binding) settle(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	if again, err := b.join(c, w); again || err != nil {
		return again, err
	}
	if !b.shares || w.seat.raw != nil {
		return false, nil // nobody else uses it, or enter waits for the function of Raw
	}
	if again, err := b.checkTx(c, w); again || err != nil {
		return again, err
	}
	return b.prepareFor(ctx, c, w)
}

// checkTx decides whether the operation may run, given the transaction that is open on
// w.Conn or was open there.
func (b *Binding) checkTx(c *Checkout, w *Want) (again bool, _ error) {
	r, s := w.Conn, w.seat
	if r.Session.Unusable() && s == b.main.Load() && !r.Session.Begun() {
		return true, nil // a read of rows has found it dead; release raises the loss barrier
	}
	if dead := r.Session.Outlived(); dead != nil {
		_ = dead.End() // the program's next call on it returns the error
		return true, nil
	}
	if tx := c.tx; tx != nil && !w.Begins && !tx.over && tx.Tx.OverOn(&r.Session) {
		return false, sql.ErrTxDone // a statement of an ended transaction must not run in autocommit
	}
	own := c.txOn(s)
	if own == nil && r.Session.InTx() && (r.Session.Begun() || s.opener != c.turn()) { // another checkout has begun it
		if err := b.joinsTx(s, w); err != nil {
			return false, err
		}
	}
	return false, lossOf(r, own)
}

// join makes c a user of w's seat, if that is still the seat for the operation.
func (b *Binding) join(c *Checkout, w *Want) (again bool, _ error) {
	s := w.seat
	if b.refuses(c, w) != nil {
		// Something has changed since enter called refuses; enter calls it again. The loss
		// barrier is raised under the lock of the main seat, while main still points
		// to it. So a statement that found the main seat before that sees the
		// barrier here.
		c.partFromRows() // its claim may have ended during the wait for the lock
		return true, nil
	}
	if !c.reattach(s) {
		return true, nil
	}
	scoped, main := b.transactionOf(c.scope), b.main.Load()
	switch {
	case scoped != nil && !scoped.Tx.Open():
		return false, sql.ErrTxDone // the transaction of InTx has ended before its function
	case c.seat != s:
		if main != s && scoped == nil {
			return true, nil
		}
		b.addUser(w)
		c.share(s, executed)
	case scoped == nil && b.callsToMain(main, c):
		return true, nil
	}
	return false, nil
}

// prepareFor makes w's seat the main one if the operation needs a session, and reads into
// memory the rows that block the operation.
func (b *Binding) prepareFor(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	r, s := w.Conn, w.seat
	if w.Begins || session.NeedsSession(w.Effect) {
		main := b.main.Load()
		if main == nil {
			if !b.main.CompareAndSwap(nil, s) {
				return true, nil // another seat has just become the main one
			}
			s.begin()
		}
		if !r.Session.InTx() {
			s.opener = c.turn() // the checkout that opens the transaction which this statement may begin
		}
	}
	if err := r.Session.ReadAhead(ctx); err != nil {
		return false, err
	}
	if !mergedctx.IsSame(&s.values, &c.values) && r.Session.TakesValues() {
		s.values = c.values
		if err := r.Session.Share(c.forHooks(ctx)); err != nil {
			return false, err
		}
	}
	if w.Effect&dialects.Writes != 0 && r.Session.Traits().WritesAlone {
		b.clearOthers(ctx, s)
	}
	return false, nil
}

// clearOthers reads into memory the rows that the task has open on seats other than
// s: under Traits.WritesAlone they block a write on s. Rows that are too large stay open.
// Then the database decides whether the write succeeds.
func (b *Binding) clearOthers(ctx context.Context, s *Seat) {
	for _, other := range b.all() {
		r := other.conn.Load()
		if other == s || r == nil || r.Session.Rows() == nil || !b.tryHold(other) {
			continue
		}
		func() {
			defer other.release(op) // also if the driver panics
			if other.raw == nil {
				_ = other.conn.Load().Session.ReadAhead(ctx)
			}
		}()
	}
}

// callsToMain reports whether operations of c have to use main and not the seat that
// c has.
func (b *Binding) callsToMain(main *Seat, c *Checkout) bool {
	return main != nil && main != c.seat
}

// joinsTx decides, under the lock, whether a statement may join the transaction on s,
// which is not its own. The error says why not.
func (b *Binding) joinsTx(s *Seat, w *Want) error {
	switch b.engine.config.Ambient {
	case config.AmbientStrict:
		if !w.Begins {
			return fmt.Errorf("pooldriver: statement refused: %s has had a transaction open %s, and pool_ambient=strict lets no other statement of the task join it; run the statement with the *sql.Tx or in InTx, or with a context of pooldriver.Outside or pooldriver.NewTask", b.task.Name(), ago(s.since))
		}
	case config.AmbientWarn:
		if !s.warned {
			s.warned = true
			since := ago(s.since)
			w.joined = func() { b.engine.report.JoinedTx(b.task.Name(), since) } // when the lock is free
		}
	}
	if t := w.Conn.Session.Innermost(); t != nil {
		t.Join()
	}
	return nil
}

// rawPatience is how long a statement waits for its task's session while a function of Raw
// has it. The wait is short: that function itself may run the statement.
const rawPatience = 500 * time.Millisecond

// awaitRaw waits, without a lock, for the end of a function of Raw.
func (b *Binding) awaitRaw(ctx context.Context, busy <-chan struct{}) error {
	timer := time.NewTimer(rawPatience)
	defer timer.Stop()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("pooldriver: the session of %s has been lent to a function of Raw, or by Conn of pgxpooldriver, for more than %v; use the connection that was lent there", b.task.Name(), rawPatience)
	}
}

// all are the seats that the binding has now.
func (b *Binding) all() []*Seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seats)
}

// hasAny reports whether the binding has a connection. (held also counts connections that are
// still on their way to the binding.)
func (b *Binding) hasAny() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seats) > 0
}

// offer hands seats on which nobody works to the statements of the task that wait.
func (b *Binding) offer() {
	for _, s := range b.all() {
		s.recheck()
	}
}

// mayShare reports, under the lock, whether a statement that waits could use s.
func (b *Binding) mayShare(s *Seat) bool {
	r := s.conn.Load()
	if r == nil || !s.maySend(r) {
		return false
	}
	rows := r.Session.Rows()
	return rows == nil || !rows.TooLarge() && b.engine.report.Buffered.Load() <= b.engine.config.NestedBufferTotal
}

// enqueue has unlock hand a connection to w.
func (b *Binding) enqueue(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters = append(b.waiters, w)
	b.waiting.Store(int32(len(b.waiters)))
}

// leaveQueue ends what enqueue began. A connection that was handed to w, and that w has not
// adopted, goes to the next one.
func (b *Binding) leaveQueue(w *waiter) {
	b.mu.Lock()
	b.waiters = slices.DeleteFunc(b.waiters, func(other *waiter) bool { return other == w })
	b.waiting.Store(int32(len(b.waiters)))
	s := w.takeHandedSeat()
	b.mu.Unlock()
	if s != nil {
		s.unlock(op)
	}
}

package binding

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file alone decides which session serves an operation; claim.go decides when it goes back.
//
// Every checkout has a binding. Without a task the binding is private: it has one
// connection, nothing pins that connection beyond the checkout, and the checkout behaves
// as over plain database/sql.
//
// In a task every connection belongs to the task's binding, and one statement at a time
// uses it. While nothing pins a session, each checkout of the task takes a connection from
// the pool. The first statement that needs a session (it begins a transaction or sets
// state) makes its connection the main one. From then on every statement of the task uses
// the main connection, until nothing pins it. If the pool has no free connection, a
// statement shares a connection that its task has already. The rows that are open on that
// connection are read into memory first. A task without a connection waits in the pool's
// queue. So a task that holds a connection waits for another one only if a statement
// cannot share.
//
// An implicit task shares nothing, unless Config.Ambient says so: its checkouts use their connections
// as without a task, and no connection is the main one. The binding knows the connections only for
// the task's end.

// Binding is the set of connections that a task has on one connector. Without a task, each
// checkout has a private binding.
type Binding struct {
	engine *Engine
	task   *task.Task // nil: the binding is private
	shares bool       // its checkouts share connections: the task is explicit, or Config.Ambient is not Auto

	// main is the task's session while something pins the session. It changes under the lock of
	// the session that is, or was, the main one.
	main atomic.Pointer[Conn]
	// lossBarrier is the error of the task's statements after the task has lost a
	// transaction or state that they relied on. nil: nothing is lost.
	lossBarrier atomic.Pointer[session.LostError]
	ended       atomic.Bool
	rolledBack  atomic.Bool  // a transaction was open at the task's end
	held        atomic.Int32 // connections lent to the task, or on their way to it

	// mu protects the claims on the binding's connections (use.users, use.peeks), the pin that
	// keeps a connection here (use.pin), and the arrival and departure of a connection. It is
	// held for some nanoseconds, and never while anything waits. Order: a session's lock, then
	// mu.
	mu      sync.Mutex
	waiters []*waiter    // statements of the task that wait for a connection, in their order; mu protects it
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

// enter finds the session for an operation of the task, and locks the session.
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
		if busy := w.Conn.use.raw; busy != nil {
			c.Unlock(w)
			if err := b.awaitRaw(ctx, busy); err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// lockTarget locks the session that seems to be the right one for an operation. again: that
// session has left the binding.
func (b *Binding) lockTarget(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	if err := b.refuses(c, w); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.partFromRows()
	if r := b.target(c); r != nil {
		return b.lockFor(ctx, c, w, r)
	}
	return false, b.obtain(ctx, c, w)
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

// raiseBarrier makes the task's statements fail with loss from now on.
func (b *Binding) raiseBarrier(loss *session.LostError) { b.lossBarrier.Store(loss) }

// lowerBarrier removes the loss barrier unless it is final. A transaction has begun, so
// the program knows that the last one is gone.
func (b *Binding) lowerBarrier() {
	if f := b.lossBarrier.Load(); f != nil && !f.Final() {
		b.lossBarrier.CompareAndSwap(f, nil)
	}
}

// target returns the connection for an operation of c: the connection of its InTx, else the main
// connection, else the connection that c has. nil: c takes one from the pool. target does not
// hold the connection's lock; settle checks the answer under the lock.
func (b *Binding) target(c *Checkout) *Conn {
	var to *Conn
	if tx := b.transactionOf(c.scope); tx != nil {
		to = tx.conn
	} else if main := b.main.Load(); b.callsToMain(main, c) {
		to = main
	} else {
		return c.conn
	}
	if c.conn != nil && c.conn != to {
		b.detach(c) // may wait for a lock, so main may have changed
		return b.target(c)
	}
	return to
}

// settle checks, under the lock of w.Conn, that w.Conn is the right connection for the operation,
// and prepares it. again: w.Conn is not the right connection, or not any more.
func (b *Binding) settle(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	if again, err := b.join(c, w); again || err != nil {
		return again, err
	}
	if !b.shares || w.Conn.use.raw != nil {
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
	r := w.Conn
	if r.Unusable() && r == b.main.Load() && !r.Begun() {
		return true, nil // a read of rows has found r dead; release raises the loss barrier
	}
	if dead := r.Outlived(); dead != nil {
		_ = dead.End() // the program's next call on that transaction returns the error
		return true, nil
	}
	if tx := c.tx; tx != nil && !w.Begins && !tx.over && !tx.Open() && !tx.Replaced() {
		return false, sql.ErrTxDone // a statement of an ended transaction must not run in autocommit
	}
	own := c.own(r)
	if own == nil && b.isAmbient(c, r) {
		if err := b.joinsTx(r, w); err != nil {
			return false, err
		}
	}
	return false, r.lossOf(own)
}

// isAmbient reports whether an operation of c, which has no transaction of its own on r,
// would run in a transaction that another checkout has begun.
func (b *Binding) isAmbient(c *Checkout, r *Conn) bool {
	return r.InTx() && (r.Begun() || r.use.opener != c.turn())
}

// join makes c a user of w.Conn, if w.Conn is still the connection for the operation.
func (b *Binding) join(c *Checkout, w *Want) (again bool, _ error) {
	r := w.Conn
	if b.refuses(c, w) != nil {
		// Something has changed since enter called refuses; enter calls it again. The loss
		// barrier is raised under the lock of the main connection, while main still points
		// to it. So a statement that found the main connection before that sees the
		// barrier here.
		return true, nil
	}
	if !c.reattach(r) {
		return true, nil
	}
	scoped, left := b.transactionOf(c.scope), r.holder.Load() != b
	main := b.main.Load()
	switch {
	case scoped != nil && (left || !scoped.Open()):
		return false, sql.ErrTxDone // the transaction of InTx has ended before its function
	case left && c.conn == r: // r has died
		return false, driver.ErrBadConn
	case left: // r was the main connection
		return true, nil
	case c.conn != r:
		if main != r && scoped == nil {
			return true, nil
		}
		b.joined(w, r)
		c.share(r, true)
	case scoped == nil && b.callsToMain(main, c):
		return true, nil
	}
	return false, nil
}

// prepareFor makes r the main session if the operation needs a session, and reads into
// memory the rows that block the operation.
func (b *Binding) prepareFor(ctx context.Context, c *Checkout, w *Want) (again bool, _ error) {
	r := w.Conn
	if w.Begins || session.NeedsSession(w.Effect) {
		main := b.main.Load()
		if main == nil {
			if !b.main.CompareAndSwap(nil, r) {
				return true, nil // another connection has just become the main one
			}
			r.use.begin()
		}
		if !r.InTx() {
			r.use.opener = c.turn() // of a transaction that this statement may begin
		}
	}
	if err := r.ReadAhead(ctx); err != nil {
		return false, err
	}
	if !isSame(&r.values, &c.values) && r.TakesValues() {
		r.values = c.values
		if err := r.Share(c.forHooks(ctx)); err != nil {
			return false, err
		}
	}
	if w.Effect&dialects.Writes != 0 && r.Traits().WritesAlone {
		b.clearOthers(ctx, r)
	}
	return false, nil
}

// callsToMain reports whether operations of c have to use main and not the connection that
// c has.
func (b *Binding) callsToMain(main *Conn, c *Checkout) bool {
	return main != nil && main != c.conn
}

// joinsTx decides, under r's lock, whether a statement may join the transaction on r,
// which another checkout has begun. The error says why not.
func (b *Binding) joinsTx(r *Conn, w *Want) error {
	switch b.engine.config.Ambient {
	case Strict:
		if !w.Begins {
			return fmt.Errorf("pooldriver: statement refused: %s has had a transaction open %s, and pool_ambient=strict lets no other statement of the task join it; run the statement with the *sql.Tx or in InTx, or with a context of pooldriver.Outside or pooldriver.NewTask", b.task.Name(), ago(r.use.since))
		}
	case Warn:
		if !r.use.warned {
			r.use.warned = true
			since := ago(r.use.since)
			w.joined = func() { b.engine.report.JoinedTx(b.task.Name(), since) } // called when the lock is free
		}
	}
	if t := r.Innermost(); t != nil {
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
		return fmt.Errorf("pooldriver: the session of %s has been lent to a function of Raw for more than %v; in that function, use the driver.Conn that it was given", b.task.Name(), rawPatience)
	}
}

// conns are the connections that the binding has.
func (b *Binding) conns() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for r := range b.engine.connections() {
			if r.holder.Load() == b && !yield(r) {
				return
			}
		}
	}
}

// offer hands r to a statement of the task that waits, if there is one and nobody works on r.
func (b *Binding) offer(r *Conn) {
	if b.waiting.Load() > 0 && b.tryPeek(r) {
		b.endPeek(r)
	}
}

// offerAll is offer for all connections of the task.
func (b *Binding) offerAll() {
	for r := range b.conns() {
		b.offer(r)
	}
}

// mayShare reports, under r's lock, whether a statement that waits could use r.
func (b *Binding) mayShare(r *Conn) bool {
	rows := r.Rows()
	return r.maySend() && (rows == nil || !rows.TooLarge() && b.engine.report.Buffered.Load() <= b.engine.config.Pool.Session.BufferTotal)
}

// enqueue adds w to the waiters to which unlock hands connections.
func (b *Binding) enqueue(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters = append(b.waiters, w)
	b.waiting.Store(int32(len(b.waiters)))
}

// leaveQueue removes w from the waiters. A connection that was handed to w, and that w has not
// adopted, goes to the next waiter.
func (b *Binding) leaveQueue(w *waiter) {
	b.mu.Lock()
	b.waiters = slices.DeleteFunc(b.waiters, func(other *waiter) bool { return other == w })
	b.waiting.Store(int32(len(b.waiters)))
	r := w.adopted()
	b.mu.Unlock()
	if r != nil {
		b.endPeek(r)
	}
}

// unlock unlocks r, on which the caller has a claim. If r can be shared, and a statement of the
// task waits for a connection, unlock hands r and r's lock to that statement: if r was unlocked in
// between, others could take r each time.
func (b *Binding) unlock(r *Conn) {
	if b.waiting.Load() > 0 {
		if !b.mayShare(r) {
			r.Unlock()
			return
		}
		// Operations that wait for the lock itself get every second turn.
		others := r.use.handed && r.Contended()
		if r.use.handed = !others; !others && b.handOver(r) {
			return
		}
	}
	r.Unlock()
	// A statement that has joined the queue meanwhile may have found r locked. A statement joins
	// before it tries r. So either it finds r unlocked, or offer finds it in the queue.
	b.offer(r)
}

// handOver gives r, with the caller's lock and a peek, to the statement that has waited for the
// longest time. It reports false if no statement waits.
func (b *Binding) handOver(r *Conn) bool {
	b.mu.Lock()
	var first *waiter
	if len(b.waiters) > 0 && r.holder.Load() == b {
		first, b.waiters = b.waiters[0], b.waiters[1:]
		b.waiting.Store(int32(len(b.waiters)))
		first.given = r
		r.use.peeks++
	}
	b.mu.Unlock()
	if first == nil {
		return false
	}
	first.cancel(errHandedOver)
	return true
}

// hasAny reports whether the binding has a connection. (held also counts connections that are
// still on their way to the binding.)
func (b *Binding) hasAny() bool {
	for range b.conns() {
		return true
	}
	return false
}

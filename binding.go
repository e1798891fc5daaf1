package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Which session serves an operation is decided in this file and nowhere else; when it may
// go back, and in what state, in pinning.go.
//
// A checkout begins when database/sql takes a virtual connection and ends when it puts it
// back. Its first operation attaches a real connection, which stays until the checkout
// ends, so that a *sql.Tx or *sql.Conn keeps its session.
//
// Every checkout has a binding. Without a task it is a private one: it has one connection,
// which nothing pins beyond the checkout, and behaves as plain database/sql does.
//
// In a task every connection belongs to the task's binding and is used by one statement at
// a time. A task whose session is clean has no connection of its own: each checkout takes
// one. The first statement that needs a session (a transaction begins, state is set) makes
// its connection the main one, and from then on every statement of the task goes there,
// until nothing pins it. Where the pool has nothing to give, a statement shares a
// connection that its task has already; rows that are open on it are read into memory
// first. A task that has no connection waits for one as everybody does. So nobody waits for
// a connection while holding one, but for what only a second connection can do.

// binding is what a task has on one connector or, without a task, what a checkout has.
type binding struct {
	connector *core
	task      *task.Task // nil: it is a checkout's private one

	// main is the task's session while something pins it. It changes under the lock of
	// the session that it is or was.
	main atomic.Pointer[realConn]
	// inTx: main was in a transaction when it was unlocked last.
	inTx atomic.Bool
	// lossBarrier: what the task's statements get since a transaction or state was lost
	// that they counted on.
	lossBarrier atomic.Pointer[session.LostError]
	ended       atomic.Bool
	rolledBack  atomic.Bool  // a transaction was open at the task's end
	held        atomic.Int32 // connections lent to the task, or on their way to it

	// leaving are the ends of checkouts that could not have their session's lock.
	// Whoever has it sees to them.
	leaving         atomic.Int32
	mu              sync.Mutex // protects following fields
	pendingDetaches []*realConn
	// evictions are closed when a connection is back at the task's end.
	evictions []<-chan struct{}
}

var _ task.Member = (*binding)(nil)

// TaskEnded makes the binding refuse statements from now on. WrapUp follows.
func (b *binding) TaskEnded() { b.ended.Store(true) }

func (b *binding) isPrivate() bool { return b.task == nil }

// start finds the session for an operation, locks it, and begins what was deferred.
func (c *checkout) start(ctx context.Context, op *operation) error {
	if c.refusal != nil {
		return c.refusal
	}
	for {
		if err := c.reach(ctx, op); err != nil {
			return ctxerr.Of(ctx, err)
		}
		op.started, op.calls = true, op.real.Calls()
		if !op.measured {
			op.measure()
		}
		if op.real.Deferred() == nil {
			return nil
		}
		if again, err := c.beginDeferred(ctx, op); !again {
			return ctxerr.Of(ctx, err)
		}
	}
}

// reach finds the session and locks it.
func (c *checkout) reach(ctx context.Context, op *operation) error {
	op.started = false
	b := c.bound
	switch {
	case b == nil:
		return c.attach(ctx, op)
	case b.isPrivate():
		return c.enter(ctx, op)
	}
	if c.tx == nil {
		// A *sql.Conn: this context may be one of InTx, the last one not.
		c.separate = c.separate && c.real != nil
		switch p, err := c.connector.placeOf(ctx); {
		case err == nil && p.Task == b.task:
			c.scope, op.scope = p.Scope, p.Scope
		case c.scope.Left():
			c.scope = nil
		}
	}
	return b.enter(ctx, c, op)
}

// enter is reach for a checkout without a task that has a connection, or has lost it with
// its rows: they were read into memory, and others waited.
func (c *checkout) enter(ctx context.Context, op *operation) error {
	r, rows := c.real, c.open
	c.open = nil
	if rows != nil && rows.Detached() {
		r = nil // it may be somebody else's: not to be waited for
	}
	if r == nil {
		return c.attachAgain(ctx, op)
	}
	if err := r.lockFor(ctx); err != nil {
		c.open = rows
		return err
	}
	if rows != nil {
		rows.Attach()
		if rows.Detached() {
			r.unlockAndRecheck()
			return c.attachAgain(ctx, op)
		}
	}
	op.real, op.locked = r, true
	if rows != nil || r.Traits().BadConnUnsure {
		// The driver may answer a dead context on a healthy connection with ErrBadConn.
		return ctx.Err()
	}
	return nil
}

// attachAgain is attach for a checkout that has lost its connection with its rows.
func (c *checkout) attachAgain(ctx context.Context, op *operation) error {
	c.hold(nil)
	c.bound, op.reclaimed = nil, true
	return c.attach(ctx, op)
}

// attach is reach for the first operation of a checkout.
func (c *checkout) attach(ctx context.Context, op *operation) error {
	if c.tx != nil {
		return c.attachDeferred(ctx, op)
	}
	p, err := c.connector.placeOf(ctx)
	if err != nil {
		return err
	}
	if p.Scope.Left() {
		return sql.ErrTxDone
	}
	op.scope, c.label = p.Scope, p.Label
	if p.Task != nil {
		b, err := c.connector.bindTo(p.Task)
		if err != nil {
			return err
		}
		c.bound, c.scope, c.from = b, p.Scope, p.From
		if err := b.enter(ctx, c, op); err != nil {
			if c.real == nil {
				c.unbind()
			}
			return err
		}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !op.goesOn() && !c.connector.admits(nil, p.From) {
		return c.connector.drainingError()
	}
	return c.borrow(ctx, op, p.From)
}

// borrow attaches a connection of the pool without a task.
func (c *checkout) borrow(ctx context.Context, op *operation, from *task.Task) error {
	lease, err := c.connector.acquire(ctx, from, c.label)
	if err != nil {
		c.connector.tellNotAcquired(ctx, c.label, nil, err)
		return err
	}
	c.bound = &c.private
	c.private.attach(ctx, c, op, lease)
	return nil
}

// attachDeferred is attach for the first statement of a transaction that was deferred
// without a task, and so has none, whatever the statement's context says. If it gets no
// connection the transaction does not begin any more: what comes next must not be
// committed without it.
func (c *checkout) attachDeferred(ctx context.Context, op *operation) error {
	t := c.tx
	if err := t.Refused(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, merged := mergedctx.New(t.Context(), ctx)
	defer merged.Release()
	place := task.PlaceOf(t.Context())
	c.label = place.Label
	err := ctxerr.Of(both, c.borrow(both, op, place.From))
	t.attached()
	if err != nil {
		t.Refuse(err)
		return err
	}
	t.owner, t.bound = op.real, c.bound
	op.real.Defer(&t.Tx)
	op.real.Began(&t.Tx, time.Time{})
	return nil
}

// hold makes r, on which nothing has happened in this checkout, its connection; nil: it has
// none any more.
func (c *checkout) hold(r *realConn) { c.real, c.touched, c.executed = r, false, false }

// detach ends the checkout. A connection with nothing left on it is lent again at once;
// whatever else it needs happens behind the caller, and counts as active until it is done.
func (c *checkout) detach() {
	if b := c.bound; b != nil {
		b.detach(c)
	}
	c.unbind()
}

func (c *checkout) unbind() {
	c.bound, c.scope, c.from, c.separate, c.tx = nil, nil, nil, false, nil
}

// discard ends the checkout and the real connection with it.
func (c *checkout) discard() {
	b, r := c.bound, c.real
	if r != nil && (c.open == nil || !c.open.Detached()) && b.take(r) {
		r.MarkUnusable()
		b.release(r)
	}
	c.detach()
}

// enter finds the session for an operation of the task, and returns with its lock.
func (b *binding) enter(ctx context.Context, c *checkout, op *operation) error {
	for {
		if err := b.refuses(c, op); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if rows := c.open; rows != nil && rows.Buffer() != nil {
			c.open = nil // their connection may be somebody else's: not to be waited for
			if rows.Detached() {
				c.hold(nil)
			}
		}
		if r := b.target(c); r != nil {
			if err := r.lockFor(ctx); err != nil {
				return err
			}
			op.real, op.locked = r, true
		} else if err := b.obtain(ctx, c, op); err != nil {
			return err
		}
		again, err := b.settle(ctx, c, op)
		if err != nil || again {
			c.unlock(op)
			if err != nil {
				return err
			}
			continue
		}
		if busy := op.real.use.raw; busy != nil {
			c.unlock(op)
			if err := b.awaitRaw(ctx, busy); err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// refuses tells why nothing may run here any more, or now.
func (b *binding) refuses(c *checkout, op *operation) error {
	if b.ended.Load() {
		return b.task.EndedError()
	}
	if c.scope.Left() {
		return sql.ErrTxDone
	}
	// A transaction that is open knows that it is.
	if f := b.lossBarrier.Load(); f != nil && !c.separate && (f.Final() || op.kind != beginning && c.tx == nil) {
		return f
	}
	return nil
}

// lowerBarrier lowers the loss barrier: a transaction has begun, and the program knows that
// the last one is gone.
func (b *binding) lowerBarrier() {
	if f := b.lossBarrier.Load(); f != nil && !f.Final() {
		b.lossBarrier.CompareAndSwap(f, nil)
	}
}

// target is the connection that an operation of c goes to, as far as can be told without
// its lock: that of the InTx it is in, the one it has, the main one; nil: it takes one.
func (b *binding) target(c *checkout) *realConn {
	var to *realConn
	if tx := b.transactionOf(c.scope); tx != nil {
		to = tx.owner
	} else if main := b.main.Load(); b.callsToMain(main, c) {
		if b.inTx.Load() && c.real == nil && b.ambient() == AmbientSeparate {
			c.separate = true // need not wait for a lock to learn that
			return nil
		}
		to = main
	} else {
		return c.real
	}
	if c.real != nil && c.real != to {
		b.detach(c) // which may take its time
		return b.target(c)
	}
	return to
}

// settle makes sure, under its lock, that op.real is the connection for the operation, and
// makes it ready. again: it is not, or not any more.
func (b *binding) settle(ctx context.Context, c *checkout, op *operation) (again bool, _ error) {
	if again, err := b.join(c, op); again || err != nil {
		return again, err
	}
	if op.real.use.raw != nil {
		return false, nil // enter waits
	}
	if again, err := b.checkTx(c, op); again || err != nil {
		return again, err
	}
	return b.prepareFor(ctx, c, op)
}

// checkTx decides what the transaction that is open on op.real, or was, means for the
// operation.
func (b *binding) checkTx(c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if r.Unusable() && r == b.main.Load() && !r.Begun() {
		return true, nil // found out by reading rows; release tells what is lost
	}
	if dead := r.Outlived(); dead != nil {
		_ = dead.End() // the program learns of it from what it does next
		return true, nil
	}
	if tx := c.tx; tx != nil && op.kind != beginning && !tx.over && !tx.Open() && !tx.Replaced() {
		return false, sql.ErrTxDone // it never runs in autocommit
	}
	own := c.own(r)
	if own == nil && b.isAmbient(c, r) {
		switch err := b.joinsTx(r, op); {
		case err == errSeparate:
			b.standDown(c, r)
			c.separate = true
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, r.lossOf(own)
}

// lossOf is why a statement of own, or where that is nil of no transaction, must not run on
// r.
func (r *realConn) lossOf(own *transaction) error {
	if r.TxLost() {
		return r.LostTx()
	}
	if own != nil {
		return own.Lost()
	}
	if in := r.Innermost(); in != nil {
		return in.Lost()
	}
	return nil
}

// isAmbient reports whether an operation of c that is no transaction's own would run in one
// that somebody else has begun.
func (b *binding) isAmbient(c *checkout, r *realConn) bool {
	return r.InTx() && !c.separate && (r.Begun() || r.use.opener != c)
}

// join makes c a user of op.real, if that is still where the operation belongs.
func (b *binding) join(c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if b.refuses(c, op) != nil {
		// Since enter has asked; it asks again. Whoever raises the loss barrier still has
		// the lock of the main connection, and has not taken it from main: here no
		// statement misses it that found the connection without it.
		return true, nil
	}
	if rows := c.open; rows != nil && c.real == r {
		rows.Attach()
		if rows.Detached() {
			c.open = nil
			c.hold(nil)
			return true, nil
		}
	}
	scoped := b.transactionOf(c.scope)
	if scoped != nil && (r.holder.Load() != b || !scoped.Open()) {
		return false, sql.ErrTxDone // behind the back of InTx
	}
	if r.holder.Load() != b {
		if c.real == r { // it has died in our hands, and left
			return false, driver.ErrBadConn
		}
		return true, nil // it was the main connection
	}
	main := b.main.Load()
	switch {
	case c.real != r:
		if main != r && scoped == nil {
			return true, nil
		}
		r.use.users++
		c.real, c.touched, c.executed, c.separate = r, true, true, r.use.separate
	case scoped == nil && b.callsToMain(main, c):
		return true, nil
	}
	return false, nil
}

// prepareFor makes r the main session if the operation needs one, and reads the rows into
// memory that are in its way.
func (b *binding) prepareFor(ctx context.Context, c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if (op.kind == beginning || session.NeedsSession(op.Effect)) && !c.separate {
		main := b.main.Load()
		if main == nil {
			if !b.main.CompareAndSwap(nil, r) {
				return true, nil // another one's, just now
			}
			r.use.since = time.Now()
		}
		if !r.InTx() {
			r.use.opener = c // of what it may begin
		}
	}
	if err := r.ReadAhead(ctx); err != nil {
		return false, err
	}
	if op.Effect&dialects.Writes != 0 && r.Traits().WritesAlone {
		b.clearOthers(ctx, r)
	}
	return false, nil
}

// callsToMain reports whether c, which has a connection, has to go to the main one. With
// AmbientSeparate it keeps what it has, as over plain database/sql.
func (b *binding) callsToMain(main *realConn, c *checkout) bool {
	return main != nil && main != c.real && !c.separate && (c.real == nil || b.ambient() != AmbientSeparate)
}

// standDown takes c off r, whose lock it holds, while others stay.
func (b *binding) standDown(c *checkout, r *realConn) {
	r.use.users--
	c.hold(nil)
	c.open = nil // theirs is r
}

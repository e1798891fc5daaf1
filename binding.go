package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// Which real connection an operation uses is decided in this file and nowhere
// else; when it may go back, and in what state, in pinning.go.
//
// A checkout begins when database/sql takes a virtual connection and ends when
// it puts it back. Its first operation attaches a real connection, which stays
// until the checkout ends, so that a *sql.Tx or *sql.Conn keeps its session.
//
// Without a task the connection is the checkout's alone: a lease. database/sql
// serialises all calls to one virtual connection, its statements, rows and
// transactions (driverConn's lock), so a lease needs no lock. The exception is
// rows that others may take back, see starvation.go.
//
// In a task every connection belongs to the task's binding and is used by one
// statement at a time. A task whose session is clean has no connection of its own:
// each checkout takes one. The first statement that needs a session (a transaction
// begins, state is set) makes its connection the main one, and from then on every
// statement of the task goes there, until nothing pins it. Where the pool
// has nothing to give, a statement shares a connection that its task has
// already; rows that are open on it are read into memory first. A task that has
// none waits for one as everybody does. So nobody waits for a connection while
// holding one, but for what only a second connection can do.

// binding is what a task has on one connector.
type binding struct {
	task      *task.Task
	connector *Connector

	// main is the task's session while something pins it. It changes under
	// the lock of the session that it is or was.
	main atomic.Pointer[realConn]
	// inTx: main was in a transaction when it was unlocked last.
	inTx atomic.Bool
	// lossBarrier: what the task's statements get since a transaction or state was
	// lost that they counted on.
	lossBarrier atomic.Pointer[lostError]
	ended       atomic.Bool
	held        atomic.Int32 // connections lent to the task, or on their way to it

	// leaving are the ends of checkouts that could not have their
	// session's lock. Whoever has it sees to them.
	leaving         atomic.Int32
	mu              sync.Mutex // protects following fields
	pendingDetaches []*realConn
	// evictions are closed when a connection is back at the task's end.
	evictions []<-chan struct{}
}

var _ task.Member = (*binding)(nil)

// TaskEnded makes the binding refuse statements from now on. WrapUp follows.
func (b *binding) TaskEnded() { b.ended.Store(true) }

// start begins a try: it finds the connection and, in a task, waits for its lock.
func (c *conn) start(ctx context.Context, t *operation) error {
	if c.refusal != nil {
		return c.refusal
	}
	for {
		if err := c.reach(ctx, t); err != nil {
			return ofContext(ctx, err)
		}
		if t.real.deferred == nil {
			return nil
		}
		if again, err := c.beginDeferred(ctx, t); !again {
			return ofContext(ctx, err)
		}
	}
}

func (c *conn) reach(ctx context.Context, t *operation) error {
	if r := c.real; r != nil && c.bound == nil && c.open == nil {
		if r.traits.BadConnUnsure {
			// Its driver answers a dead context on a healthy connection
			// with ErrBadConn.
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		t.real = r
		return nil
	}
	return c.attach(ctx, t)
}

// attach is reach where a connection has to be found.
func (c *conn) attach(ctx context.Context, t *operation) error {
	if b := c.bound; b != nil {
		if c.tx == nil {
			// A *sql.Conn: this context may be one of InTx, the last one not.
			c.separate = c.separate && c.real != nil
			switch p, err := c.connector.placeOf(ctx); {
			case err == nil && p.Task == b.task:
				c.scope, t.scope = p.Scope, p.Scope
			case c.scope.Left():
				c.scope = nil
			}
		}
		return b.enter(ctx, c, t)
	}
	if c.open != nil {
		c.claim()
	}
	if c.real != nil {
		t.real = c.real
		return ctx.Err()
	}
	if c.tx != nil {
		return c.attachDeferred(ctx, t)
	}
	p, err := c.connector.placeOf(ctx)
	if err != nil {
		return err
	}
	if p.Scope.Left() {
		return sql.ErrTxDone
	}
	t.scope = p.Scope
	if p.Task != nil {
		b, err := c.connector.bindTo(p.Task)
		if err != nil {
			return err
		}
		c.bound, c.scope, c.from = b, p.Scope, p.From
		if err := b.enter(ctx, c, t); err != nil {
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
	return c.borrow(ctx, t, p.From)
}

// borrow attaches a connection of the pool without a task: a lease.
func (c *conn) borrow(ctx context.Context, t *operation, from *task.Task) error {
	lease, err := c.connector.acquire(ctx, from)
	if err != nil {
		return err
	}
	r := lease.Value()
	r.lease = lease
	c.hold(r)
	t.real = r
	return nil
}

// hold makes r, on which nothing has happened in this checkout, its connection;
// nil: it has none any more.
func (c *conn) hold(r *realConn) { c.real, c.touched, c.executed = r, false, false }

// claim ends the time in which the connection of the checkout's only query may
// be taken back: another operation comes, or the checkout ends. Rows that are in
// memory already are not waited for.
func (c *conn) claim() {
	rows := c.open
	c.open = nil
	if !rows.closed && rows.ahead.Load() == nil { // else the connection may be another's
		_ = rows.owner.lock.Lock(context.Background())
		rows.soleOperation = false
		defer rows.owner.unlock()
	}
	if rows.reclaimed {
		c.hold(nil)
	}
}

// detach ends the checkout. A connection with nothing left on it is lent again
// at once; whatever else it needs happens behind the caller, and counts as
// active until it is done.
func (c *conn) detach() {
	if b := c.bound; b != nil {
		b.leave(c)
		c.unbind()
		return
	}
	if c.open != nil {
		c.claim()
	}
	if r := c.real; r != nil {
		c.real, c.tx = nil, nil
		c.connector.takeBack(r)
	}
}

func (c *conn) unbind() {
	c.bound, c.scope, c.from, c.separate, c.tx = nil, nil, nil, false, nil
}

// discard ends the checkout and the real connection with it.
func (c *conn) discard() {
	b := c.bound
	switch {
	case b == nil:
		if c.open != nil {
			c.claim()
		}
		if c.real != nil {
			c.real.broken = true
		}
	case c.real != nil && (c.open == nil || !c.open.reclaimed) && b.take(c.real):
		c.real.broken = true
		b.pass(c.real)
	}
	c.detach()
}

// enter finds the connection for an operation of the task, and returns with its lock.
func (b *binding) enter(ctx context.Context, c *conn, t *operation) error {
	for {
		if err := b.refuses(c, t); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if rows := c.open; rows != nil && rows.ahead.Load() != nil {
			c.claim() // their connection may be somebody else's: not to be waited for
		}
		if r := b.target(c); r != nil {
			if err := r.lockFor(ctx); err != nil {
				return err
			}
			t.real, t.locked = r, true
		} else if err := b.obtain(ctx, c, t); err != nil {
			return err
		}
		again, err := b.settle(ctx, c, t)
		if err != nil || again {
			c.unlock(t)
			if err != nil {
				return err
			}
			continue
		}
		if busy := t.real.seat.raw; busy != nil {
			c.unlock(t)
			if err := b.awaitRaw(ctx, busy); err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// refuses tells why nothing may run here any more, or now.
func (b *binding) refuses(c *conn, t *operation) error {
	if b.ended.Load() {
		return b.task.EndedError()
	}
	if c.scope.Left() {
		return sql.ErrTxDone
	}
	// A transaction that is open knows that it is.
	if f := b.lossBarrier.Load(); f != nil && !c.separate && (f.final || !t.begins && c.tx == nil) {
		return f
	}
	return nil
}

// lowerBarrier lowers the loss barrier: a transaction has begun, and the program knows that the last
// one is gone.
func (b *binding) lowerBarrier() {
	if f := b.lossBarrier.Load(); f != nil && !f.final {
		b.lossBarrier.CompareAndSwap(f, nil)
	}
}

// target is the connection that an operation of c goes to, as far as can be
// told without its lock: that of the InTx it is in, the one it has, the main
// one; nil: it takes one.
func (b *binding) target(c *conn) *realConn {
	var to *realConn
	if tx := b.transactionOf(c.scope); tx != nil {
		to = tx.owner
	} else if main := b.main.Load(); b.calls(main, c) {
		if b.inTx.Load() && c.real == nil && b.ambient() == AmbientSeparate {
			c.separate = true // need not wait for a lock to learn that
			return nil
		}
		to = main
	} else {
		return c.real
	}
	if c.real != nil && c.real != to {
		b.leave(c) // which may take its time
		return b.target(c)
	}
	return to
}

// settle makes sure, under its lock, that t.real is the connection for the
// operation, and makes it ready. again: it is not, or not any more.
func (b *binding) settle(ctx context.Context, c *conn, t *operation) (again bool, _ error) {
	r := t.real
	if b.refuses(c, t) != nil {
		// Since enter has asked; it asks again. What raises the loss barrier still has
		// the lock of the main connection, and has not taken it from main: here
		// no statement misses it that found the connection without it.
		return true, nil
	}
	if rows := c.open; rows != nil && c.real == r {
		rows.soleOperation = false
		if rows.reclaimed {
			c.open = nil
			c.hold(nil)
			return true, nil
		}
	}
	scoped := b.transactionOf(c.scope)
	if scoped != nil && (r.holder.Load() != b || !scoped.open()) {
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
		r.seat.users++
		c.real, c.touched, c.executed, c.separate = r, true, true, r.seat.separate
	case scoped == nil && b.calls(main, c):
		return true, nil
	}
	if r.seat.raw != nil {
		return false, nil // enter waits
	}
	if r.broken && r == main && !r.begun() {
		return true, nil // found out by reading rows; tidy tells what is lost
	}
	if dead := r.outlived(); dead != nil {
		_ = dead.end() // the program learns of it from what it does next
		return true, nil
	}
	if tx := c.tx; tx != nil && !t.begins && !tx.over && !tx.open() && !tx.replaced {
		return false, sql.ErrTxDone // it never runs in autocommit
	}
	own := c.own(r)
	if r.inTx() && !c.separate && own == nil && (r.begun() || r.seat.opener != c) {
		switch err := b.join(r, t); {
		case err == errSeparate:
			b.standDown(c, r)
			c.separate = true
			return true, nil
		case err != nil:
			return false, err
		}
	}
	if r.lost() {
		return false, r.lostTx()
	}
	if own == nil {
		own = r.innermost()
	}
	if own != nil && own.lost != nil {
		return false, own.lost
	}
	if (t.begins || needsSession(t.effect)) && !c.separate {
		if main == nil && !b.main.CompareAndSwap(nil, r) {
			return true, nil // another one's, just now
		}
		if main == nil {
			r.seat.since = time.Now()
		}
		if !r.inTx() {
			r.seat.opener = c // of what it may begin
		}
	}
	if err := b.clear(ctx, r); err != nil {
		return false, err
	}
	if t.effect&dialects.Writes != 0 && r.traits.WritesAlone {
		b.clearOthers(ctx, r)
	}
	return false, nil
}

// calls reports whether c, which has a connection, has to go to the main one.
// With AmbientSeparate it keeps what it has, as over plain database/sql.
func (b *binding) calls(main *realConn, c *conn) bool {
	return main != nil && main != c.real && !c.separate && (c.real == nil || b.ambient() != AmbientSeparate)
}

// standDown takes c off r, whose lock it holds, while others stay.
func (b *binding) standDown(c *conn, r *realConn) {
	r.seat.users--
	c.hold(nil)
	c.open = nil // theirs is r
}

// obtain gives c a connection, and t the lock on it: one of the pool's or, where
// that would mean waiting for others while the task holds one, its own.
func (b *binding) obtain(ctx context.Context, c *conn, t *operation) error {
	cn := b.connector
	taken := false
	defer func() { // also after a panic of the driver
		if !taken {
			b.held.Add(-1)
		}
	}()
	// A task that has nothing, and waits for nothing, waits as everybody does.
	// Who comes later may find that the task has a connection by then.
	if b.held.Add(1) == 1 && c.from == nil {
		lease, err := cn.acquire(ctx, nil)
		if err != nil {
			return err
		}
		b.seat(c, t, lease)
		taken = true
		return nil
	}
	for {
		lease, err := cn.pool.AcquireNow(ctx)
		if err == nil {
			if err := cn.broughtUp(ctx, lease); err != nil {
				return err
			}
			b.seat(c, t, lease)
			taken = true
			return nil
		}
		if err != pool.ErrNoneNow {
			return cn.acquireError(err, nil)
		}
		var tooLarge error
		if !c.separate {
			if tooLarge = b.share(ctx, c, t); t.locked {
				return nil
			}
		}
		lease, err = cn.await(ctx, &waiter{binding: b, from: c.from, separate: c.separate, tooLarge: tooLarge})
		if err == nil {
			b.seat(c, t, lease)
			taken = true
			return nil
		}
		if err != errOwnIsFree {
			return err
		}
	}
}

// share gives c a connection of the task that no statement is running on, if
// there is one, and t its lock. The error tells why rows stayed open.
func (b *binding) share(ctx context.Context, c *conn, t *operation) (err error) {
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b || !r.lock.TryLock() {
			continue
		}
		t.real, t.locked = r, true // a panic of the driver unlocks it, too
		if b.maySend(r) {
			if err = b.clear(ctx, r); err == nil {
				r.seat.users++
				c.real, c.touched, c.executed = r, true, r.seat.users > 1
				return nil
			}
		}
		c.unlock(t)
	}
	return err
}

// maySend reports, under r's lock, whether any statement of the task may run on r.
func (b *binding) maySend(r *realConn) bool {
	return r.holder.Load() == b && !r.seat.separate && !r.broken && r.seat.raw == nil
}

package binding

import (
	"context"
	"database/sql"
	"time"

	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Tx is the transaction of a checkout. In a task, a transaction that begins while another one is
// open is a savepoint in the open one.
type Tx struct {
	session.Tx

	checkout   *Checkout
	conn       *Conn // nil: deferred, and without a connection yet
	binding    *Binding
	around     *Tx  // the transaction around t on the same virtual connection, which goes on after t; nil: none
	over       bool // Commit or Rollback was called
	unattached bool // Engine.unattached counts t
}

// Conn is the connection of t, nil if it is deferred and has none.
func (t *Tx) Conn() *Conn { return t.conn }

// Attached reports whether t has a connection.
func (t *Tx) Attached() bool { return t.conn != nil }

// InTask reports whether t has a connection that belongs to a task.
func (t *Tx) InTask() bool { return t.binding != nil && t.binding.task != nil }

// TaskEnded reports whether the task of t, which has a connection, has ended.
func (t *Tx) TaskEnded() bool { return t.binding.ended.Load() }

// On prepares t to begin on r, which the checkout has.
func (t *Tx) On(c *Checkout, r *Conn) {
	t.checkout, t.conn, t.binding = c, r, c.binding
}

// Began records that t, which is no savepoint, has begun on its connection or was deferred
// there.
func (t *Tx) Began() {
	r := t.conn
	if !t.binding.isPrivate() {
		r.use.begin()
		t.binding.lowerBarrier()
	}
	r.Began(&t.Tx, r.use.since)
	t.begun()
}

// BeganSavepoint is Began for a savepoint.
func (t *Tx) BeganSavepoint() {
	t.conn.BeganSavepoint(&t.Tx, time.Now())
	t.binding.lowerBarrier()
	t.begun()
}

// begun makes t the transaction of its checkout.
func (t *Tx) begun() {
	c := t.checkout
	t.around, c.tx = c.tx, t
}

// DeferOn makes t, which begins with its first statement, the transaction of a checkout that has
// nothing yet. It reports false if t may not begin any more. from: the task from whose context the
// context of t was derived.
func (t *Tx) DeferOn(c *Checkout, from *task.Task) bool {
	t.checkout, t.unattached = c, true
	c.engine.unattached.Add(1)
	if !c.engine.admits(nil, from) {
		t.countOut()
		return false
	}
	t.begun()
	return true
}

// attached completes DeferOn: t has got the connection r, or the error err.
func (t *Tx) attached(r *Conn, b *Binding, err error) {
	t.countOut()
	if err != nil {
		t.Refuse(err)
		return
	}
	t.conn, t.binding = r, b
	r.Defer(&t.Tx)
	r.Began(&t.Tx, time.Time{})
}

// countOut counts t out of the transactions without a connection.
func (t *Tx) countOut() {
	if t.unattached {
		t.unattached = false
		t.checkout.engine.unattached.Add(-1)
	}
}

// again defers the begin once more, for another connection.
func (t *Tx) again() {
	t.conn, t.binding = nil, nil
	t.Again()
}

// Leave removes t from its checkout. The transactions of a checkout may end in any order.
func (t *Tx) Leave() {
	t.over = true
	t.countOut()
	for c := t.checkout; c.tx != nil && c.tx.over; {
		c.tx = c.tx.around
	}
}

// Finish ends the transaction, which has a connection, under the lock. If the driver panics,
// database/sql does not give the checkout back, so Finish ends the connection. Holders shows text
// meanwhile.
func (t *Tx) Finish(text *string, end func() error) error {
	locked, panicked := false, true
	defer func() {
		if locked {
			t.unlock()
		}
		if panicked {
			t.driverPanicked()
		}
		t.Release()
	}()
	err := t.lock()
	if err == nil {
		locked = true
		t.conn.Meter.BeginOperation(text, true, false)
		err = t.binding.withTaskEnd(t.conn, end())
	}
	panicked = false
	return err
}

func (t *Tx) unlock() {
	t.conn.Meter.EndOperation(t.conn.pinnedBy())
	if t.binding.isPrivate() {
		t.conn.Unlock() // the checkout still uses it
		return
	}
	t.binding.untake(t.conn)
}

// IsLent reports whether t is without a task, and a function of Raw has its connection. In a
// task the end of t waits for the function.
func (t *Tx) IsLent() bool {
	return t.conn != nil && t.checkout.lent == t.conn && t.binding.isPrivate()
}

func (t *Tx) driverPanicked() {
	if !t.binding.take(t.conn) {
		return
	}
	t.conn.MarkUnusable()
	if t.Open() {
		t.Forget()
	}
	c, b := t.checkout, t.binding
	private := b.isPrivate()
	if c.conn == t.conn {
		c.letGo()
		if private {
			b.standDown(t.conn) // take has not peeked
		} else {
			b.countOut(t.conn)
		}
	}
	b.release(t.conn, true)
	if private {
		c.unbind()
	}
}

// lock locks the session for the end of a transaction.
func (t *Tx) lock() error {
	for {
		if t.binding.ended.Load() {
			return t.binding.task.EndedError() // the task's end rolls back; the connection may have another borrower
		}
		if !t.binding.take(t.conn) {
			return sql.ErrTxDone // the transaction around it has ended, and t with it
		}
		if t.binding.isPrivate() {
			return nil
		}
		busy := t.conn.use.raw
		switch {
		case t.binding.ended.Load():
		case !t.Open() && !t.Replaced():
			t.binding.untake(t.conn)
			return sql.ErrTxDone
		case busy == nil:
			return nil
		}
		t.binding.untake(t.conn)
		if busy == nil {
			continue
		}
		if err := t.binding.awaitRaw(context.Background(), busy); err != nil {
			t.abandon()
			return err
		}
	}
}

// abandon gives up a transaction that cannot be ended now: database/sql does not try
// again.
func (t *Tx) abandon() {
	if t.binding.take(t.conn) {
		t.conn.MarkUnusable()
		if t.Open() {
			t.Abandon()
		}
		t.binding.untake(t.conn)
	}
}

// tx returns t. transactionOf calls it on the transaction of a scope.
func (t *Tx) tx() *Tx { return t }

// transactionOf returns the transaction that scope has begun on b's connector. If scope has begun
// none there, it returns the transaction of the nearest outer scope that has begun one there. nil: none.
func (b *Binding) transactionOf(scope *task.Scope) *Tx {
	for s := scope; s != nil; s = s.Around() {
		if t, ok := s.Transaction().(interface{ tx() *Tx }); ok && t.tx().binding == b {
			return t.tx()
		}
	}
	return nil
}

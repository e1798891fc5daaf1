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
	Tx session.Tx

	checkout   *Checkout
	seat       *Seat // nil: deferred, and without a connection yet
	binding    *Binding
	around     *Tx  // the transaction around this one on the same virtual connection; nil: none
	over       bool // Commit or Rollback was called
	unattached bool // it is counted in Engine.unattached
}

// Attached reports whether t has a connection.
func (t *Tx) Attached() bool { return t.seat != nil }

// InTask reports whether t has a connection that belongs to a task.
func (t *Tx) InTask() bool { return t.binding != nil && t.binding.task != nil }

// TaskEnded reports whether the task of t, which has a connection, has ended.
func (t *Tx) TaskEnded() bool { return t.binding.ended.Load() }

// On prepares t to begin on the connection of the checkout.
func (t *Tx) On(c *Checkout) {
	t.checkout, t.seat, t.binding = c, c.seat, c.binding
	if !t.binding.isPrivate() {
		t.seat.setKnown()
	}
}

// Began records that t, which is no savepoint, has begun on its connection or was deferred
// there.
func (t *Tx) Began() {
	s := t.seat
	if !t.binding.isPrivate() {
		s.begin()
		t.binding.lowerBarrier()
	}
	s.conn.Load().Session.Began(&t.Tx, s.since)
	t.begun()
}

// BeganSavepoint records that t, which is a savepoint, has begun.
func (t *Tx) BeganSavepoint() {
	t.seat.conn.Load().Session.BeganSavepoint(&t.Tx, time.Now())
	t.binding.lowerBarrier()
	t.begun()
}

// begun makes t the transaction of its checkout.
func (t *Tx) begun() {
	c := t.checkout
	t.around, c.tx = c.tx, t
}

// DeferOn makes t, which begins with its first statement, the transaction of a checkout that has
// nothing yet. It reports false if t may not begin any more. from is the task that its context
// was made of.
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

// attached ends what DeferOn began: t has got a connection, or err.
func (t *Tx) attached(w *Want, b *Binding, err error) {
	t.countOut()
	if err != nil {
		t.Tx.Refuse(err)
		return
	}
	t.seat, t.binding = w.seat, b
	w.Conn.Session.Defer(&t.Tx)
	w.Conn.Session.Began(&t.Tx, time.Time{})
}

// countOut counts t out of the transactions without a connection.
func (t *Tx) countOut() {
	if t.unattached {
		t.unattached = false
		t.checkout.engine.unattached.Add(-1)
	}
}

// deferAgain defers the begin once more, for another connection.
func (t *Tx) deferAgain() {
	t.seat, t.binding = nil, nil
	t.Tx.Again()
}

// Leave removes t from its checkout. The transactions of a checkout may end in any order. Leave reports
// false if t was over before: a wrapper between database/sql and us has ended it twice, and others may
// have its session by now.
func (t *Tx) Leave() (first bool) {
	if t.over {
		return false
	}
	t.over = true
	t.countOut()
	for c := t.checkout; c.tx != nil && c.tx.over; {
		c.tx = c.tx.around
	}
	return true
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
		t.Tx.Release()
	}()
	err := t.lock()
	if err == nil {
		locked = true
		r := t.seat.conn.Load()
		r.Meter.BeginOperation(text, true, false)
		err = t.binding.withTaskEnd(r, end())
	}
	panicked = false
	return err
}

func (t *Tx) unlock() {
	r := t.seat.conn.Load()
	r.Meter.EndOperation(t.seat.pinnedBy(r))
	t.seat.release(none)
}

// IsLent reports whether t is without a task, and a function of Raw has its connection. In a
// task the end of t waits for the function.
func (t *Tx) IsLent() bool {
	return t.seat != nil && t.checkout.lent == t.seat && t.binding.isPrivate()
}

func (t *Tx) driverPanicked() {
	s, c := t.seat, t.checkout
	r := s.hold()
	if r == nil {
		return
	}
	r.Session.MarkUnusable()
	if t.Tx.Open() {
		t.Tx.Forget()
	}
	c.leaveAfterPanic(s, c.seat == s)
}

// lock locks the seat for the end of a transaction.
func (t *Tx) lock() error {
	for {
		if t.binding.ended.Load() {
			return t.binding.task.EndedError() // the task's end rolls back
		}
		r := t.seat.hold()
		if r == nil {
			if t.binding.ended.Load() {
				continue
			}
			return sql.ErrTxDone // the transaction around it has ended, and t with it
		}
		if t.binding.isPrivate() {
			return nil
		}
		busy := t.seat.raw
		switch {
		case t.binding.ended.Load():
		case t.Tx.OverOn(&r.Session):
			t.seat.release(none)
			return sql.ErrTxDone
		case busy == nil:
			return nil
		}
		t.seat.release(none)
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
	r := t.seat.hold()
	if r == nil {
		return
	}
	r.Session.MarkUnusable()
	if t.Tx.Open() {
		t.Tx.Abandon()
	}
	t.seat.release(none)
}

// transactionOf returns the transaction that scope has begun on b's connector. If scope has begun
// none there, it returns the transaction of the nearest scope around scope that has. nil: none.
func (b *Binding) transactionOf(scope *task.Scope) *Tx {
	for s := scope; s != nil; s = s.Around() {
		if t, ok := s.Transaction().(interface{ Held() *Tx }); ok && t.Held().binding == b {
			return t.Held()
		}
	}
	return nil
}

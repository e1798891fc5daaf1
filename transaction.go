package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// transaction is the transaction of a checkout. In a task, one that begins while another is
// open is a savepoint in it.
type transaction struct {
	session.Tx

	checkout *checkout
	owner    *realConn // nil: deferred, and without a connection yet
	bound    *binding
	around   *transaction // of the same virtual connection; it goes on when this one ends; nil: none
	over     bool         // Commit or Rollback was called
	commits  bool         // Commit was called
	// unattached: the transaction is counted in core.unattached.
	unattached bool
}

var _ driver.Tx = (*transaction)(nil)

// errTxOptions refuses a BeginTx inside a transaction whose options are different.
var errTxOptions = errors.New("pooldriver: a transaction inside another one of its task is a savepoint, and has to have the same isolation level and access mode or none; use NewTask for a transaction of its own")

// begun makes t the transaction of its checkout.
func (c *checkout) begun(t *transaction) *transaction {
	t.around, c.tx = c.tx, t
	return t
}

// again defers the begin once more, for another connection.
func (t *transaction) again() {
	t.owner, t.bound = nil, nil
	t.Again()
}

// leave removes t from its checkout. The transactions of a checkout may end in any order.
func (t *transaction) leave() {
	t.over = true
	t.attached()
	for c := t.checkout; c.tx != nil && c.tx.over; {
		c.tx = c.tx.around
	}
}

// finish ends the transaction under the lock. If the driver panics, database/sql does not
// give the checkout back, so finish ends the connection.
func (t *transaction) finish(end func() error) error {
	panicked := true
	defer func() {
		if panicked {
			t.driverPanicked()
		}
		t.Release()
	}()
	err := t.lock()
	if err == nil {
		err = func() error {
			t.owner.Meter.BeginOperation(nil, true, false)
			defer t.unlock()
			return end()
		}()
	}
	panicked = false
	return err
}

func (t *transaction) unlock() {
	t.owner.Meter.EndOperation(t.owner.pinnedBy())
	if t.bound.isPrivate() {
		t.owner.Unlock() // the checkout uses it still
		return
	}
	t.bound.untake(t.owner)
}

// endsAfterRaw reports whether a function of Raw has the connection of t, and lets t be
// rolled back when the function returns. In a task it does nothing: lock waits for the
// function.
func (t *transaction) endsAfterRaw() bool {
	l := t.checkout.lent
	if l == nil || t.owner != l.real || !t.bound.isPrivate() {
		return false
	}
	l.later = append(l.later, func() { _ = t.finish(t.End) })
	return true
}

func (t *transaction) driverPanicked() {
	if !t.bound.take(t.owner) {
		return
	}
	t.owner.MarkUnusable()
	if t.Open() {
		t.Forget()
	}
	if t.checkout.real == t.owner {
		t.bound.standDown(t.checkout, t.owner)
	}
	t.bound.untake(t.owner)
	if t.bound.isPrivate() {
		t.checkout.unbind()
	}
}

// lock locks the session for the end of a transaction.
func (t *transaction) lock() error {
	for {
		if t.bound.ended.Load() {
			return t.bound.task.EndedError() // the task's end rolls back; the connection may have another borrower
		}
		if !t.bound.take(t.owner) {
			return sql.ErrTxDone // the transaction around it has ended, and t with it
		}
		if t.bound.isPrivate() {
			return nil
		}
		busy := t.owner.use.raw
		switch {
		case t.bound.ended.Load():
		case !t.Open() && !t.Replaced():
			t.bound.untake(t.owner)
			return sql.ErrTxDone
		case busy == nil:
			return nil
		}
		t.bound.untake(t.owner)
		if busy == nil {
			continue
		}
		if err := t.bound.awaitRaw(context.Background(), busy); err != nil {
			t.abandon()
			return err
		}
	}
}

// abandon gives up a transaction that cannot be ended now: database/sql does not try
// again.
func (t *transaction) abandon() {
	if t.bound.take(t.owner) {
		t.owner.MarkUnusable()
		if t.Open() {
			t.Abandon()
		}
		t.bound.untake(t.owner)
	}
}

// transactionOf returns the transaction that scope has begun on b's connector, or else
// that of the nearest scope around it that has begun one there. nil: there is none.
func (b *binding) transactionOf(scope *task.Scope) *transaction {
	for s := scope; s != nil; s = s.Around() {
		if t, ok := s.Transaction().(*transaction); ok && t.bound == b {
			return t
		}
	}
	return nil
}

// own returns the transaction on r to which an operation of c belongs: the one that c has
// begun, or that of the InTx in whose scope c was attached.
func (c *checkout) own(r *realConn) *transaction {
	if c.tx != nil && c.tx.owner == r {
		return c.tx
	}
	return c.scoped(r)
}

// scoped returns the transaction on r of the InTx in whose scope c was attached.
func (c *checkout) scoped(r *realConn) *transaction {
	if tx := c.bound.transactionOf(c.scope); tx != nil && tx.owner == r {
		return tx
	}
	return nil
}

// ran records, under r's lock, that c has run a statement on r.
func (c *checkout) ran(r *realConn) {
	if r.Depth() > 0 {
		if own := c.own(r); own != nil {
			own.Ran()
		}
	}
}

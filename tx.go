package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/internal/session"
)

// tx is the virtual transaction of a checkout. In a task, one that begins while another is
// open is a savepoint in it.
type tx struct {
	session.Tx

	conn   *conn
	owner  *realConn // nil: deferred, and without a connection yet
	bound  *binding
	around *tx  // of the same virtual connection, that goes on when this one ends
	over   bool // Commit or Rollback was called
}

var _ driver.Tx = (*tx)(nil)

// errTxOptions is the answer to a BeginTx inside a transaction with other options than that
// one has.
var errTxOptions = errors.New("pooldriver: a transaction inside another one of its task is a savepoint, and has to have the same isolation level and access mode or none; use NewTask for a transaction of its own")

// begun makes t the transaction of its checkout.
func (c *conn) begun(t *tx) *tx {
	t.around, c.tx = c.tx, t
	return t
}

// again defers the begin anew, for another connection.
func (t *tx) again() {
	t.owner, t.bound = nil, nil
	t.Again()
}

// Commit commits. An error of the driver leaves it open whether the transaction has ended;
// an error of ours means that it was rolled back.
func (t *tx) Commit() error {
	t.leave()
	if t.endsAfterRaw() {
		return errEndInRaw
	}
	if t.conn.refusal == errRawClosed && (t.bound == nil || t.bound.isPrivate()) {
		t.Release()
		return errRawClosed
	}
	if t.owner == nil {
		t.Release()
		return t.Refused()
	}
	return t.finish(t.Tx.Commit)
}

// Rollback rolls back. database/sql calls it too when the context of BeginTx has ended.
func (t *tx) Rollback() error {
	t.leave()
	if t.endsAfterRaw() {
		return nil
	}
	if t.owner == nil {
		t.Release()
		return nil
	}
	err := t.finish(t.End)
	if errors.Is(err, ErrTaskEnded) && t.bound.ended.Load() {
		return nil // it is rolled back then
	}
	return err
}

// leave takes t from its checkout, whichever of its transactions ends first.
func (t *tx) leave() {
	t.over = true
	for c := t.conn; c.tx != nil && c.tx.over; {
		c.tx = c.tx.around
	}
}

// finish ends the transaction under the lock. If the driver panics, database/sql does not
// give the checkout back: its connection ends here.
func (t *tx) finish(end func() error) error {
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
			defer t.unlock()
			return end()
		}()
	}
	panicked = false
	return err
}

func (t *tx) unlock() {
	if t.bound.isPrivate() {
		if t.bound.unlock(t.owner) {
			t.bound.release(t.owner)
		}
		return
	}
	t.bound.release(t.owner)
}

// endsAfterRaw lets t be rolled back when the function of Raw returns that has its
// connection. In a task lock sees to it.
func (t *tx) endsAfterRaw() bool {
	l := t.conn.lent
	if l == nil || t.owner != l.real || !t.bound.isPrivate() {
		return false
	}
	l.later = append(l.later, func() { _ = t.finish(t.End) })
	return true
}

func (t *tx) driverPanicked() {
	if !t.bound.take(t.owner) {
		return
	}
	t.owner.MarkUnusable()
	if t.Open() {
		t.Forget()
	}
	if t.conn.real == t.owner {
		t.bound.standDown(t.conn, t.owner)
	}
	t.bound.release(t.owner)
	if t.bound.isPrivate() {
		t.conn.unbind()
	}
}

// lock locks for the end of a transaction.
func (t *tx) lock() error {
	for {
		if t.bound.ended.Load() {
			return t.bound.task.EndedError() // which rolls back; the connection may be another's
		}
		if !t.bound.take(t.owner) {
			return sql.ErrTxDone // with the one around it
		}
		if t.bound.isPrivate() {
			return nil
		}
		busy := t.owner.use.raw
		switch {
		case t.bound.ended.Load():
		case !t.Open() && !t.Replaced():
			t.bound.release(t.owner)
			return sql.ErrTxDone
		case busy == nil:
			return nil
		}
		t.bound.release(t.owner)
		if busy == nil {
			continue
		}
		if err := t.bound.awaitRaw(context.Background(), busy); err != nil {
			t.abandon()
			return err
		}
	}
}

// abandon is for a transaction that cannot be ended now, and will not be asked to be again.
func (t *tx) abandon() {
	if t.bound.take(t.owner) {
		t.owner.MarkUnusable()
		if t.Open() {
			t.Abandon()
		}
		t.bound.release(t.owner)
	}
}

package pooldriver

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/internal/session"
)

// rows are the virtual rows of a query. They are read under the session's lock, until they
// have been read ahead into memory. database/sql serialises the calls of their owner.
// Optional methods that the driver lacks get the answers that database/sql gives in that
// case.
type rows struct {
	session.Rows

	owner    *realConn
	checkout *checkout // whose checkout has opened them
	bound    *binding
	closed   bool // by the owner

	// What the owner is sure to ask for, found while the lock was held already.
	columns []string // of this result set, handed out once; nil: the driver is asked
	over    bool     // the owner has come to the end of this result set
	more    bool     // and then: there is another one
}

var errRowsClosed = errors.New("pooldriver: these rows are closed")

// openRows makes the virtual rows of a query that has just run on op's session.
func (c *checkout) openRows(op *operation) *rows {
	r := c.spare
	if r == nil {
		r = new(rows)
	}
	c.spare = nil
	r.owner, r.checkout, r.bound, r.columns, r.closed = op.real, c, c.bound, op.columns, false
	c.open = r
	// The session of a checkout that has done nothing else can be taken from it when the
	// rows are in memory, if nothing is left on it.
	detachable := op.first && c.tx == nil && session.LeavesNothing(op.real.Effect())
	op.real.OpenRows(&r.Rows, op.opened, op.Prepared, detachable)
	return r
}

// lock locks for a call of the driver, or tells that there is none to make: what there is
// to say is in the buffer, or why tells it.
func (r *rows) lock() (live bool) {
	if r.closed || r.Buffer() != nil || r.Gone() || r.isLent() {
		return false
	}
	_ = r.owner.Lock(context.Background())
	if r.Live() {
		if r.owner.holder.Load() == r.bound {
			r.owner.meter.BeginRow()
			return true
		}
		r.LoseSession() // the driver has panicked
	}
	r.owner.unlockAndRecheck()
	return false
}

// unlock ends what lock began.
func (r *rows) unlock() {
	r.owner.use.ops++
	r.owner.meter.EndRow()
	if r.bound.unlock(r.owner) {
		r.bound.release(r.owner)
	}
}

// isLent reports whether the session of rows without a task is a function of Raw's. In a
// task rows are read into memory before that.
func (r *rows) isLent() bool {
	return r.bound.isPrivate() && r.checkout.lent != nil && r.checkout.lent.real == r.owner
}

// why tells what has ended rows that were not read to their end.
func (r *rows) why() error {
	switch {
	case r.closed && r.Lost() == nil:
		return errRowsClosed
	case r.Lost() != nil:
		return r.Lost()
	case r.isLent():
		return errLent
	}
	return session.ErrRowsLost
}

// Close closes the driver's rows. database/sql calls it once.
func (r *rows) Close() error {
	if r.closed {
		return nil
	}
	defer r.checkout.endEarly()
	live := r.lock()
	r.closed = true
	if !live {
		return r.closeWithoutSession()
	}
	returned := false
	defer func() {
		r.DropPrefix()
		r.owner.meter.SetPin(r.owner.pinnedBy())
		switch {
		case !returned:
			r.driverPanicked()
		case r.LetGo():
			r.owner.use.users--
			r.bound.release(r.owner)
		default:
			r.unlock()
			r.recycle()
		}
	}()
	err := r.Rows.Close()
	returned = true
	return err
}

// closeWithoutSession is Close where the rows are in memory, or gone, or where a function
// of Raw has the session: then the driver's rows are closed when it has returned. What was
// read ahead of them nobody wants.
func (r *rows) closeWithoutSession() error {
	if b := r.Buffer(); b != nil {
		b.Drop()
		return b.Closed()
	}
	if r.isLent() {
		r.DropPrefix()
		l := r.checkout.lent
		l.later = append(l.later, func() {
			_ = r.owner.Lock(context.Background())
			defer r.owner.unlockAndRecheck()
			if r.Live() {
				_ = r.Rows.Close()
			}
		})
	}
	return nil
}

// recycle leaves rows that are closed to the next query of their virtual connection: the
// memory is warm. Not those of a task, which others than their owner know. database/sql
// never touches rows that it has closed.
func (r *rows) recycle() {
	if !r.bound.isPrivate() {
		return
	}
	c, b := r.checkout, r.bound
	if c.open == r {
		c.open = nil // nothing is left that could be taken back
	}
	*r = rows{checkout: c, bound: b, closed: true}
	c.spare = r
}

// driverPanicked ends the connection of rows whose driver panicked when they were closed,
// under the lock, which it gives back. database/sql does not give the checkout back, and
// the *sql.Tx or *sql.Conn of such rows can never be ended: nothing more may run for it, on
// another connection least of all.
func (r *rows) driverPanicked() {
	c := r.checkout
	c.refusal = errDriverPanicked
	if c.real == r.owner && (c.tx == nil || r.bound.isPrivate()) {
		r.bound.standDown(c, r.owner)
	}
	r.bound.release(r.owner)
	if r.bound.isPrivate() {
		c.unbind()
	}
}

// errDriverPanicked is for what comes later in a checkout that has lost its connection so.
var errDriverPanicked = errors.New("pooldriver: the connection is gone, with its session: the driver has panicked; take another one")

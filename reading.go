package pooldriver

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/internal/session"
)

// rows are the virtual rows of a query. They are read under the session's lock, until they
// have been read ahead into memory. database/sql serialises the calls of their owner. If
// the driver lacks an optional method, they give the answer that database/sql gives in
// that case.
type rows struct {
	session.Rows

	owner    *realConn
	checkout *checkout // that has opened them
	bound    *binding
	closed   bool // by the owner

	// Answers that database/sql asks for next. They are read while the lock is held
	// anyway.
	columns []string // of this result set, handed out once; nil: the driver is asked
	over    bool     // the owner has come to the end of this result set
	more    bool     // over, and another result set follows
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
	// Others can take the session from its checkout when the rows are in memory, if the
	// checkout has done nothing else and has left nothing on the session.
	alone := op.first && c.tx == nil && session.LeavesNothing(op.real.Effect())
	op.real.OpenRows(&r.Rows, op.opened, &op.Statement, alone)
	return r
}

// lock locks the session for a call of the driver. If live is false, there is no call to
// make: the buffer has the rows, or why has the error.
func (r *rows) lock() (live bool) {
	if r.closed || r.Buffer() != nil || r.Gone() || r.isLent() {
		return false
	}
	_ = r.owner.Lock(context.Background())
	if r.Live() {
		if r.owner.holder.Load() == r.bound {
			r.owner.Meter.BeginRow()
			return true
		}
		r.LoseSession() // the driver has panicked
	}
	r.owner.Unlock()
	return false
}

// unlock ends what lock began.
func (r *rows) unlock() {
	r.owner.use.moves()
	r.owner.Meter.EndRow()
	r.owner.Unlock()
}

// isLent reports whether a function of Raw has the session of rows without a task. In a
// task the rows are read into memory before the function is called.
func (r *rows) isLent() bool {
	return r.bound.isPrivate() && r.checkout.lent != nil && r.checkout.lent.real == r.owner
}

// why returns the error of rows that have ended before they were read to their end.
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
		r.owner.Meter.SetPin(r.owner.pinnedBy())
		switch {
		case !returned:
			r.driverPanicked()
		case r.LetGo():
			r.owner.Unlock()
			r.bound.leave(r.owner, &r.owner.use.users)
		default:
			r.unlock()
			r.recycle()
		}
	}()
	err := r.Rows.Close()
	returned = true
	return err
}

// closeWithoutSession is Close for rows that are in memory, or lost, or whose session a
// function of Raw has. In the last case the driver's rows are closed when the function has
// returned. Rows that were read ahead are dropped.
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
			defer r.owner.Unlock()
			if r.Live() {
				_ = r.Rows.Close()
			}
		})
	}
	return nil
}

// recycle keeps closed rows for the next query of their virtual connection, which uses
// their memory again. It does not keep rows of a task, because others than their owner
// know them. database/sql never touches rows that it has closed.
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

// driverPanicked ends the connection of rows whose driver panicked in Close. It is called
// with the lock, and unlocks. database/sql never ends the *sql.Tx or *sql.Conn of such
// rows, so the checkout refuses further operations: above all, none may run on another
// connection.
func (r *rows) driverPanicked() {
	c := r.checkout
	c.refusal = errDriverPanicked
	if c.real == r.owner && (c.tx == nil || r.bound.isPrivate()) {
		r.bound.standDown(c, r.owner)
	}
	r.bound.release(r.owner, false)
	if r.bound.isPrivate() {
		c.unbind()
	}
}

// errDriverPanicked is the error of later operations in a checkout whose driver has
// panicked.
var errDriverPanicked = errors.New("pooldriver: the connection is gone, with its session: the driver has panicked; take another one")

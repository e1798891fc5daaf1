package binding

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/session"
)

// Rows are the rows of a query of a checkout. They are read under the session's lock, until they
// have been read ahead into memory. database/sql serialises the calls of their owner.
type Rows struct {
	Rows session.Rows

	seat     *Seat
	checkout *Checkout // the checkout that has opened the rows
	binding  *Binding
	closed   bool // the owner has closed the rows
}

// Closed reports whether the owner has closed the rows.
func (r *Rows) Closed() bool { return r.closed }

// WithTaskEnd is Checkout.WithTaskEnd for an error of the rows, under the lock.
func (r *Rows) WithTaskEnd(err error) error { return r.binding.withTaskEnd(r.seat.conn.Load(), err) }

// Lock locks the session for a call of the driver. If live is false, there is no call to
// make: the rows are in memory, or closed, or lost.
func (r *Rows) Lock() (live bool) {
	if r.closed || r.Rows.Buffer() != nil || r.Rows.Gone() || r.IsLent() {
		return false
	}
	s := r.seat
	_ = s.lock.Lock(context.Background())
	if conn := s.conn.Load(); r.Rows.Live() && conn != nil {
		conn.Meter.BeginRow()
		return true
	}
	if r.Rows.Live() {
		r.Rows.LoseSession() // the driver has panicked
	}
	s.unlock(none)
	return false
}

// Unlock ends what Lock began.
func (r *Rows) Unlock() {
	s := r.seat
	s.countOperation()
	s.conn.Load().Meter.EndRow()
	s.unlock(none)
}

// CountRow counts a row that was read from the driver, under the lock.
func (r *Rows) CountRow() { r.seat.conn.Load().Meter.CountRow() }

// IsLent reports whether a function of Raw has the session of rows without a task. In a
// task the rows are read into memory before the function is called.
func (r *Rows) IsLent() bool {
	return r.seat != nil && r.checkout.lent == r.seat && r.binding.isPrivate()
}

// Close closes the rows. If a function of Raw has their session, CloseAfterLoan closes the
// driver's rows. The connection goes back if nothing else holds it. reusable: nobody knows the
// rows any more.
func (r *Rows) Close() (reusable bool, err error) {
	live := r.Lock()
	if !r.closed && !r.binding.isPrivate() {
		r.binding.open.Add(-1)
	}
	r.closed = true
	if !live {
		if b := r.Rows.Buffer(); b != nil {
			r.binding.engine.starvation.forget(&r.Rows)
			b.Drop()
			return false, b.Closed()
		}
		return false, nil
	}
	returned := false
	defer func() {
		r.Rows.DropPrefix()
		s := r.seat
		conn := s.conn.Load()
		if conn.Meter.TellsSlow() {
			conn.Meter.CloseRows()
		}
		conn.Meter.SetPin(s.pinnedBy(conn))
		switch {
		case !returned:
			r.driverPanicked()
		case r.Rows.LetGo():
			s.unlock(user)
		default:
			r.Unlock()
			reusable = r.binding.isPrivate() // others know the rows of a task
		}
	}()
	err = r.Rows.Close()
	returned = true
	return false, err
}

// CloseAfterLoan closes the driver's rows after a function of Raw.
func (r *Rows) CloseAfterLoan() {
	if r.seat.hold() == nil {
		return
	}
	defer r.seat.unlock(none)
	if r.Rows.Live() {
		_ = r.Rows.Close()
	}
}

// Recycle empties rows that are reusable.
func (r *Rows) Recycle() {
	c, b := r.checkout, r.binding
	if c.rows == r {
		c.rows = nil // nothing is left that could be taken back
	}
	*r = Rows{checkout: c, binding: b, closed: true}
}

// driverPanicked ends the connection of rows whose driver panicked in Close. It is called
// with the lock, and unlocks.
func (r *Rows) driverPanicked() {
	c, s := r.checkout, r.seat
	c.leaveAfterPanic(s, c.seat == s && (c.tx == nil || r.binding.isPrivate()))
}

// outlive has rows of a checkout that ends go on with its claim on s, if they are open. It reports whether the checkout
// has no claim on s any more.
func (r *Rows) outlive(s *Seat) bool {
	if r.Rows.Buffer() == nil && !r.closed && s.hold() != nil {
		defer s.release(none)
		r.Rows.Attach()
		if !r.Rows.Detached() && r.Rows.Live() {
			r.Rows.Keep()
			return true
		}
	}
	return r.Rows.Detached()
}

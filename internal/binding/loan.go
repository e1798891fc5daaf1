package binding

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
)

// Loan is a session that is lent to a function of Raw. database/sql's lock on the virtual
// connection protects the Loan, as it protects the checkout.
type Loan struct {
	Conn     *connpool.Conn
	seat     *Seat
	checkout *Checkout
	binding  *Binding
	busy     chan struct{} // closed when the function has returned
	effect   dialects.Effect
}

// Lend lends the connection of an operation, which has its lock, to a function of Raw. The
// function may use its task. A statement that needs the lent session waits for rawPatience, and
// then gets an error. Nobody else calls the driver until the function returns.
func Lend(c *Checkout, w *Want) (*Loan, error) {
	r, s, b := w.Conn, w.seat, c.binding
	if b.isPrivate() && (r.Session.Unusable() || r.Session.Severed()) {
		return nil, driver.ErrBadConn // a call that was given up may still run on it
	}
	r.Session.RecordEffect(w.LoanEffect)
	l := &Loan{Conn: r, seat: s, checkout: c, binding: b, busy: make(chan struct{}), effect: w.LoanEffect}
	s.raw = l.busy
	s.users.Add(1)
	c.Ran(w)
	c.lent = s
	return l, nil
}

// End takes the session back into its checkout, whose lock the caller has. err is the function's
// error. gone reports whether a session is gone that the checkout counts on.
func (l *Loan) End(err error, panicked bool) (gone bool) {
	l.checkout.lent = nil
	l.giveBack(err, func() {
		r := l.Conn
		gone = (l.binding.isPrivate() || !r.Session.Begun()) && !panicked && !errors.Is(err, driver.ErrBadConn) && !r.Session.Left()
	})
	return gone
}

// EndWithoutLock ends the loan of a *sql.Conn that was closed meanwhile, so that its lock cannot be taken.
// Without a task the connection ends: nobody knows what is open on it.
func (l *Loan) EndWithoutLock(err error) {
	l.giveBack(err, func() {
		if l.binding.isPrivate() {
			l.Conn.Session.MarkUnusable()
		}
	})
}

// giveBack lets others use the session again. It calls look under the session's lock.
func (l *Loan) giveBack(err error, look func()) {
	r, s := l.Conn, l.seat
	_ = s.lock.Lock(context.Background()) // nobody takes the connection while raw is set
	if errors.Is(err, driver.ErrBadConn) {
		r.Session.MarkUnusable()
	}
	s.raw = nil
	r.Meter.Resume()
	close(l.busy)
	r.Session.EndLoan(l.effect, err)
	look()
	r.Meter.SetPin(s.pinnedBy(r))
	if s.over {
		l.binding.evict(s)
		return
	}
	s.release(user)
}

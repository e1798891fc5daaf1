package binding

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// Loan is a session that is lent to a function of Raw. database/sql's lock on the virtual
// connection protects the Loan, as it protects the checkout.
type Loan struct {
	Conn     *Conn
	checkout *Checkout
	binding  *Binding
	busy     chan struct{} // closed when the function has returned
}

// anything is the effect of a function of Raw, which may do anything.
const anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared | dialects.Rereads

// Lend lends the connection of an operation, which has its lock, to a function of Raw. The
// function may use its task. A statement that needs the lent session waits for rawPatience, and
// then gets an error. Nobody else calls the driver until the function returns.
func Lend(c *Checkout, w *Want) (*Loan, error) {
	r := w.Conn
	if c.binding.isPrivate() && (r.Unusable() || r.Severed()) {
		return nil, driver.ErrBadConn // a call that was given up may still run on it
	}
	r.RecordEffect(anything)
	l := &Loan{Conn: r, checkout: c, binding: c.binding, busy: make(chan struct{})}
	r.use.raw = l.busy
	c.binding.peek(r) // until giveBack
	c.share(r, true)
	c.Ran(r)
	c.lent = r
	return l, nil
}

// End takes the session back into its checkout, whose lock the caller has. err is the function's
// error. gone reports whether a session is gone that the checkout counts on.
func (l *Loan) End(err error, panicked bool) (gone bool) {
	l.checkout.lent = nil
	l.giveBack(err, func() {
		r := l.Conn
		gone = (l.binding.isPrivate() || !r.Begun()) && !panicked && !errors.Is(err, driver.ErrBadConn) && !r.Left()
	})
	return gone
}

// EndUnheld is End if the *sql.Conn was closed meanwhile, so that its lock cannot be taken.
// Without a task the connection ends: nobody knows what is open on it.
func (l *Loan) EndUnheld(err error) {
	l.giveBack(err, func() {
		if l.binding.isPrivate() {
			l.Conn.MarkUnusable()
		}
	})
}

// giveBack lets others use the session again. It calls look under the session's lock.
func (l *Loan) giveBack(err error, look func()) {
	r := l.Conn
	_ = r.Lock(context.Background())
	if errors.Is(err, driver.ErrBadConn) {
		r.MarkUnusable()
	}
	r.use.raw = nil
	r.Meter.Resume()
	close(l.busy)
	r.RecordResult(anything, err)
	look()
	r.Meter.SetPin(r.pinnedBy())
	l.binding.release(r, true)
}

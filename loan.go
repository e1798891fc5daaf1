package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// loan is a session that is lent to a function of Raw. database/sql's lock on the virtual
// connection protects it, like the checkout.
type loan struct {
	checkout *checkout
	bound    *binding
	real     *realConn
	busy     chan struct{} // closed when the function has returned
	later    []func()      // without a task: calls that wait for that
}

// anything is the effect of a function of Raw, which may do anything.
const anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared

// lend finds the session for a function of Raw. From here on c refuses every operation.
func (c *checkout) lend(ctx context.Context) (*loan, error) {
	if err := c.do(ctx, &operation{kind: lending, kept: true}); err != nil {
		return nil, err
	}
	return c.lent, nil
}

// lendTo is lend, under the lock. The function may use its task. A statement that needs
// the lent session waits for rawPatience, and then gets an error. Nobody else calls the
// driver until the function returns.
func (c *checkout) lendTo(op *operation) error {
	r := op.real
	if c.bound.isPrivate() && (r.Unusable() || r.Severed()) {
		return driver.ErrBadConn // a call that was given up may still run on it
	}
	c.touched, c.executed = true, true
	r.RecordEffect(anything)
	c.lent = &loan{checkout: c, bound: c.bound, real: r, busy: make(chan struct{})}
	c.refusal = errLent
	r.use.raw = c.lent.busy
	c.bound.peek(r) // until giveBack
	c.ran(r)
	return nil
}

// end takes the session back into its checkout.
func (l *loan) end(err error) {
	c, r := l.checkout, l.real
	c.lent, c.refusal = nil, nil
	l.giveBack(err, func() {
		if (l.bound.isPrivate() || !r.Begun()) && err != errRawPanicked && !errors.Is(err, driver.ErrBadConn) && !r.Left() {
			c.refusal = errRawClosed
		}
	})
	if err != errRawPanicked { // after a panic nobody calls the driver any more
		for _, do := range l.later {
			do()
		}
	}
}

// endUnheld is end if the *sql.Conn was closed meanwhile, so that its lock cannot be
// taken. Without a task the connection ends: nobody knows what is open on it.
func (l *loan) endUnheld(err error) {
	l.giveBack(err, func() {
		if l.bound.isPrivate() {
			l.real.MarkUnusable()
		}
	})
}

// giveBack lets others use the session again. It calls look under the session's lock.
func (l *loan) giveBack(err error, look func()) {
	r := l.real
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
	l.bound.release(r, true)
}

var (
	errRawPanicked = errors.New("pooldriver: the function of Raw panicked")
	errLent        = errors.New("pooldriver: this *sql.Conn is lent to a function of Raw until that returns: let the function use the driver.Conn that it was given, or take another *sql.Conn")
	errEndInRaw    = errors.New("pooldriver: a transaction was to be committed while a function of Raw has its connection: it is rolled back when that returns; commit after it")
	// errRawClosed makes database/sql close the *sql.Conn.
	errRawClosed = fmt.Errorf("pooldriver: the function of Raw has closed the connection of this *sql.Conn, or left it unusable, and its session is gone: take another *sql.Conn, and let the function return driver.ErrBadConn where it ends a connection on purpose: %w", driver.ErrBadConn)
)

// rawPatience is how long a statement waits for its task's session while a function of Raw
// has it. The wait is short: that function itself may run the statement.
const rawPatience = 500 * time.Millisecond

// awaitRaw waits, without a lock, for the end of a function of Raw.
func (b *binding) awaitRaw(ctx context.Context, busy <-chan struct{}) error {
	timer := time.NewTimer(rawPatience)
	defer timer.Stop()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("pooldriver: the session of %s has been lent to a function of Raw for more than %v; let that function use the connection it was given", b.task.Name(), rawPatience)
	}
}

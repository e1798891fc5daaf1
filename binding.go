package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// binding ties a checkout to the real connection that serves it. A checkout
// begins when database/sql takes a virtual connection and ends when it puts it
// back. The first operation of a checkout attaches: which connection that is,
// is decided in this file and nowhere else. It stays attached until the
// checkout ends, so that a *sql.Tx or *sql.Conn keeps its session.
//
// database/sql serialises all calls to one connection and its statements,
// rows and transactions (driverConn's lock), so a binding has no lock.
type binding struct {
	lease pool.Lease[*realConn]
	real  *realConn // nil while detached
	// touched: something has happened on the connection in this checkout, so
	// that a later operation cannot be moved to another one.
	touched bool
}

// attach returns the checkout's real connection, taking one from the pool at
// the first operation. The context is looked at before that, and before each
// operation of a driver that answers a dead context on a healthy connection
// with ErrBadConn (pgx does).
func (b *binding) attach(ctx context.Context, c *Connector) (*realConn, error) {
	if b.real != nil && !b.real.traits.BadConnUnsure {
		return b.real, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.real != nil {
		return b.real, nil
	}
	lease, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	b.lease, b.real, b.touched = lease, lease.Value(), false
	return b.real, nil
}

// detach ends the checkout. A connection with nothing left on it is lent again
// at once; whatever else it needs happens behind the caller, and counts as
// active until it is done.
func (b *binding) detach(c *Connector) {
	if b.real == nil {
		return
	}
	real, lease := b.real, b.lease
	b.real, b.lease = nil, pool.Lease[*realConn]{}
	c.takeBack(real, lease)
}

// discard ends the checkout and the real connection with it.
func (b *binding) discard(c *Connector) {
	if b.real == nil {
		return
	}
	b.real.broken = true
	b.detach(c)
}

// try is one try of an operation on a real connection.
type try struct {
	real    *realConn
	sent    uint64
	retried bool
	inside  bool // in a call of the driver that has not returned
}

// start begins a try of an operation.
func (b *binding) start(ctx context.Context, c *Connector, t *try) (err error) {
	t.real, err = b.attach(ctx, c)
	return err
}

// call marks the way into the driver. Its twin is finish; what comes between
// and does not return (a panic) leaves the connection marked.
func (t *try) call() {
	t.inside = true
	t.real.running++
	if t.real.counts {
		t.sent, _ = t.real.session.Sent()
	}
}

// escape is deferred around every try. If the driver panicked, its connection
// ends here: after some panics (in a query, in BeginTx) database/sql never gives
// the checkout back, and the place in the pool would be lost with it. Not in a
// transaction: there database/sql still rolls back on that connection.
func (c *conn) escape(t *try) {
	if t.inside && !c.inTx {
		c.binding.discard(c.connector)
	}
}

// finish marks the way out and says whether to try again, or with which error
// to return. executes tells whether the operation may have changed data.
func (b *binding) finish(ctx context.Context, c *Connector, t *try, err error, executes bool) (again bool, _ error) {
	t.inside = false
	t.real.running--
	if err == nil {
		b.touched = true
		return false, nil
	}
	if err == driver.ErrSkip {
		return false, err
	}
	if c.dialect.Diagnose(err)&dialects.ServerLeaving != 0 {
		c.flushOnce(t.real.epoch)
	}
	o := outcome{
		badConn:  errors.Is(err, driver.ErrBadConn),
		lost:     t.real.txStatus() == dialects.TxLost,
		executes: executes,
		first:    !b.touched,
		retried:  t.retried,
		expired:  ctx.Err() != nil,
	}
	if t.real.counts {
		n, _ := t.real.session.Sent()
		o.unsent = n == t.sent
	} else {
		o.trusted = !t.real.traits.BadConnUnsure
	}
	b.touched = true
	if o.badConn || o.lost {
		t.real.broken = true
	}
	v := judge(o)
	switch {
	case v.retry:
		c.stats.retries.Add(1)
		b.discard(c)
		t.retried = true
		return true, nil
	case v.unclear:
		return false, errUnclear
	}
	return false, err
}

package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Lazy begin (Config.LazyBegin): BeginTx defers the transaction, the first
// statement begins it. Without a task it takes its connection then, too. In a
// task it takes one at once, because the first statement may be another
// library's, which has to find the transaction.

// deferBegin makes a transaction that begins with its first statement, without a
// connection, where that can be: nil where BeginTx has to find one.
func (c *conn) deferBegin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if !c.connector.config.LazyBegin || c.refusal != nil || c.real != nil || c.bound != nil || c.tx != nil {
		return nil, nil
	}
	p, err := c.connector.placeOf(ctx)
	if err != nil || p.Task != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ofContext(ctx, err)
	}
	return c.begun(&tx{conn: c, opts: opts, ctx: ctx}), nil
}

// attachDeferred is attach for the first statement of a transaction that was
// deferred without a task, and so has none, whatever the statement's context says.
// If it gets no connection the transaction does not begin any more: what comes
// next must not be committed without it.
func (c *conn) attachDeferred(ctx context.Context, t *operation) error {
	p := c.tx
	if p.refused != nil {
		return p.refused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, merged := mergedctx.New(p.ctx, ctx)
	defer merged.Release()
	if err := ofContext(both, c.borrow(both, t, task.PlaceOf(p.ctx).From)); err != nil {
		p.refused = err
		return err
	}
	p.owner, t.real.deferred = t.real, p
	return nil
}

// betweenTxs reports whether no transaction is open on r, which c has. To begin one
// inside is for the driver to refuse or to do, now.
func (c *conn) betweenTxs(r *realConn) bool {
	if c.tx != nil || r.begun() {
		return false
	}
	switch r.txStatus() {
	case dialects.TxNone:
		return true
	case dialects.TxUnknown:
		return r.effect&dialects.TxControl == 0
	}
	return false
}

// beginDeferred begins the transaction that was deferred on t's connection. One
// that cannot begin fails each of its statements. One whose first statement's context
// has ended before has not tried.
func (c *conn) beginDeferred(ctx context.Context, t *operation) (again bool, _ error) {
	r := t.real
	p := r.deferred
	if p.refused != nil {
		return false, p.refused
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.refused = errNotBegun // for a driver that panics
	touched := c.touched
	carried, err := c.beginReal(ctx, t, p, !t.raw)
	again, err = c.finish(ctx, t, err, false)
	err = ofContext(p.ctx, err)
	p.refused = err
	switch {
	case again:
		return true, nil
	case err != nil:
		r.seat.gone = false // there was nothing
		return false, err
	}
	r.deferred = nil
	if carried {
		c.touched = touched // nothing was sent
	}
	return false, nil
}

var errNotBegun = errors.New("pooldriver: the transaction did not begin")

// beginReal begins the driver's transaction: by a message of its own or, where
// the statement that is to follow can carry it and the driver can do so, with
// that one.
func (c *conn) beginReal(ctx context.Context, t *operation, begun *tx, carry bool) (carried bool, err error) {
	r := t.real
	// The first statement's context bounds the beginning, too, and nothing else:
	// a driver may watch what it is given for as long as the transaction lasts.
	given, merged := mergedctx.New(begun.ctx, ctx)
	defer merged.Detach()
	begun.merged.Store(merged)
	if r.traits.TxKeepsContext {
		bounded := given
		begun.kept = newTxContext(begun.ctx)
		begun.kept.current.Store(&bounded)
		defer begun.kept.current.Store(&begun.ctx)
		given = begun.kept
	}
	before := dialects.TxUnknown
	if t.locked {
		before = r.txStatus()
	}
	t.call()
	err = errors.ErrUnsupported
	if lazy, ok := r.session.(dialects.LazyBeginner); ok && carry {
		begun.real, err = lazy.BeginWithNext(given, begun.opts)
		carried = err == nil
	}
	if err == errors.ErrUnsupported {
		begun.real, err = r.conn.Begin(given, begun.opts)
	}
	if err != nil {
		// It may have begun all the same, or left behind for the next one
		// what it set for this one.
		r.doubt, begun.real = true, nil
		begun.merged.Swap(nil).Release()
		if begun.opts != (driver.TxOptions{}) {
			r.effect |= suspectTx
		}
		if before == dialects.TxNone && r.inDriversTx() && begun.command(r.session.Rollback) != nil {
			r.broken = true // the task's next statements would be in it, and nobody ends it
		}
	}
	return carried, err
}

// again defers the begin anew, for another connection: the one that it was to
// be kept on was dead before anything was sent.
func (t *tx) again() {
	t.owner, t.real, t.kept, t.refused = nil, nil, nil, nil
}

// unbegun reports whether t has not begun, and forgets the deferred begin.
func (t *tx) unbegun() bool {
	if t.real != nil || t.savepoint != "" {
		return false
	}
	if t.owner != nil && t.owner.deferred == t {
		t.owner.deferred = nil
	}
	return true
}

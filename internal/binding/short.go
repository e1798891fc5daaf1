package binding

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
)

// The short way. Most statements have no task and leave nothing behind. Borrow, Again and Settle do
// for them what Reach and Unlock do for every operation.

// Borrow lends a connection to a checkout that has had no operation, and locks it. nil without an
// error: nothing was done, and the operation has to take the long way from Reach, because its
// context has a task, or has ended, or the checkout has a transaction that was deferred, or the
// connector drains. text is the statement's. pins: the operation begins a transaction.
func (c *Checkout) Borrow(ctx context.Context, text *string, pins bool) (*Conn, error) {
	e := c.engine
	if c.binding != nil || c.tx != nil || c.parted || e.config.TaskKey != nil || e.pool.Draining() || ctx.Err() != nil {
		return nil, nil
	}
	label, alone := task.LabelAlone(ctx)
	if !alone {
		return nil, nil
	}
	c.label = label
	r, err := c.acquire(ctx, nil)
	if err != nil {
		return nil, err
	}
	return r, c.private.attach(ctx, c, r, text, pins)
}

// Again locks the connection of a checkout that has had an operation. nil without an error: nothing
// was done, and the operation has to take the long way, because the checkout belongs to a task, or
// its last rows may be open, or its transaction has not begun, or its connection was taken back.
func (c *Checkout) Again(ctx context.Context, text *string) (*Conn, error) {
	r := c.conn
	if c.binding != &c.private || r == nil || c.rows != nil || c.parted {
		return nil, nil
	}
	if err := c.lockOwn(ctx); err != nil {
		return nil, err
	}
	if r.Deferred() != nil || r.Traits().BadConnUnsure && ctx.Err() != nil {
		r.unlock()
		return nil, nil
	}
	r.Meter.BeginOperation(text, r.Begun(), false)
	return r, nil
}

// Settle ends an operation that began with Borrow or Again, has succeeded, and leaves nothing
// behind but the rows that it may have opened. Settle unlocks r.
func (c *Checkout) Settle(r *Conn) {
	c.touched, c.executed = true, true
	r.Meter.EndOperation(r.pinnedBy())
	r.Unlock()
}

// SettleTx is Settle for a transaction that has begun.
func (c *Checkout) SettleTx(r *Conn) {
	c.touched = true
	r.Meter.EndOperation(pinning.Tx)
	r.Unlock()
}

package binding

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
)

// The short way. Most statements leave nothing behind, and have no task, or one that has no
// connection at the time. Borrow, Again and Settle do for them what Reach and Unlock do for every
// operation.

// Borrow lends a connection to a checkout that has had no operation, and locks it. nil without an
// error: nothing is locked, and the operation has to take the long way from Reach, because its
// context has ended, or has a task that is not as borrowInTask wants it, or the checkout has a
// transaction that was deferred, or the connector drains. text is the statement's. pins: the
// operation begins a transaction.
func (c *Checkout) Borrow(ctx context.Context, text *string, pins bool) (*connpool.Conn, error) {
	e := c.engine
	if c.binding != nil || c.tx != nil || c.parted || e.config.TaskKey != nil || e.pool.Draining() || ctx.Err() != nil {
		return nil, nil
	}
	label, alone := task.LabelAlone(ctx)
	if !alone {
		return c.borrowInTask(ctx, text, pins)
	}
	c.label = label
	r, waited, err := e.acquire(c.forHooks(ctx), label)
	if err != nil {
		return nil, e.notAcquired(ctx, label, nil, waited, err)
	}
	c.binding = &c.private
	return r, c.private.attach(ctx, c, r, text, pins)
}

// borrowInTask is Borrow for a statement of an explicit task that has no connection, and waits for
// none. Then no transaction, no state and no rows of the task concern the statement.
func (c *Checkout) borrowInTask(ctx context.Context, text *string, pins bool) (r *connpool.Conn, err error) {
	p := task.PlaceOf(ctx)
	if pins || p.Task == nil || p.From != nil || p.Scope != nil {
		return nil, nil
	}
	b, err := c.engine.bindTo(p.Task)
	if err != nil || !b.mayBorrow() || !b.expectFirst() {
		return nil, nil
	}
	c.binding, c.label = b, p.Label
	taken := false
	defer func() { // also after a panic of the driver
		if !taken {
			b.lost()
			c.unbind()
		}
	}()
	r, waited, err := c.engine.acquire(c.forHooks(ctx), b)
	if err == nil {
		err = b.attach(ctx, c, r, text, false)
	}
	if err != nil {
		return nil, c.engine.notAcquired(ctx, c.label, b.task, waited, err)
	}
	taken = true
	// Another statement of the task may have begun a transaction, set state or lost them since mayBorrow
	// was asked. A statement that comes later finds that the task has r.
	if b.held.Load() != 1 || !b.mayBorrow() {
		r.Meter.EndOperation(c.seat.pinnedBy(r))
		b.endUse(c.seat)
		return nil, nil // Reach asks what the task has, as for any statement that has a connection
	}
	return r, nil
}

// mayBorrow reports whether a statement of the task may run if nobody has anything open there.
func (b *Binding) mayBorrow() bool {
	return b.shares && b.lossBarrier.Load() == nil && !b.ended.Load()
}

// Again locks the connection of a checkout that has had an operation. nil without an error: nothing
// was done, and the operation has to take the long way, because the checkout belongs to a task, or
// its last rows may be open, or its transaction has not begun or is gone, or its connection was taken back.
func (c *Checkout) Again(ctx context.Context, text *string) (*connpool.Conn, error) {
	s := c.seat
	if c.binding != &c.private || s == nil || c.rows != nil || c.parted {
		return nil, nil
	}
	if err := s.lock.Lock(ctx); err != nil {
		return nil, err
	}
	r := s.conn.Load()
	if r == nil || r.Deferred() != nil || r.TxLost() || r.Traits().BadConnUnsure && ctx.Err() != nil {
		s.unlockAlone()
		return nil, nil
	}
	r.Meter.BeginOperation(text, r.Begun(), false)
	return r, nil
}

// Settle ends an operation that began with Borrow or Again, has succeeded, and leaves nothing
// behind but the rows that it may have opened. Settle unlocks r.
func (c *Checkout) Settle(r *connpool.Conn) {
	c.touched, c.executed = true, true
	s := c.seat
	r.Meter.EndOperation(s.pinnedBy(r))
	if c.binding == &c.private {
		s.unlockAlone()
		return
	}
	c.binding.endUse(s)
}

// SettleTx is Settle for a transaction that has begun.
func (c *Checkout) SettleTx(r *connpool.Conn) {
	c.touched = true
	r.Meter.EndOperation(pinning.Tx)
	c.seat.unlockAlone()
}

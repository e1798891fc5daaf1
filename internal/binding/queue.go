package binding

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/pool"
)

// This file gets a connection for a statement of a task that has no seat: from the pool, or by sharing a
// seat of the task.

// obtain gives c a seat, and w the seat's lock. The connection comes from the pool.
// If w would have to wait while the task holds a connection, w shares a seat of the task
// instead.
func (b *Binding) obtain(ctx context.Context, c *Checkout, w *Want) (err error) {
	e := b.engine
	if !w.goesOn() && !e.admits(b, c.from) {
		return e.pool.DrainingError()
	}
	taken, waited := false, time.Duration(0)
	defer func() { // also after a panic of the driver
		if !taken {
			b.lost()
		}
		if err != nil {
			err = c.notAcquired(ctx, waited, err)
		}
	}()
	keep := func(r *connpool.Conn) error {
		if err := c.attachFor(ctx, w, r); err != nil {
			return err
		}
		taken = true
		return nil
	}
	// A task that has no connection, and waits for none, waits in the pool's queue. While
	// a further statement of the task waits, the task may get a connection that the
	// statement can share: contend looks for it.
	if first := b.expect(); (first || !b.shares) && c.from == nil {
		var r *connpool.Conn
		if r, waited, err = e.acquire(c.forHooks(ctx), b, c.priorityOf(w, b)); err != nil {
			return err
		}
		return keep(r)
	}
	r, waited, err := b.contend(ctx, c, w)
	if err != nil || w.locked {
		return err
	}
	return keep(r)
}

// contend is obtain for a binding that has connections, or waits for one. If w.locked is true
// afterwards, w shares a seat of the binding.
func (b *Binding) contend(ctx context.Context, c *Checkout, w *Want) (r *connpool.Conn, waited time.Duration, err error) {
	var once time.Duration
	for hooks := c.forHooks(ctx); ; waited += once {
		if r, once, err = b.engine.acquireNow(hooks); err == pool.ErrNoneNow {
			r, once, err = b.queue(ctx, c, w)
		}
		if err != errHandedOver {
			return r, waited + once, err
		}
	}
}

// queue waits for a connection of the pool or of the task. If w.locked is true afterwards, w
// shares a seat of the task. errHandedOver: unlock has handed over a seat of the task
// that w could not share.
func (b *Binding) queue(ctx context.Context, c *Checkout, w *Want) (_ *connpool.Conn, waited time.Duration, _ error) {
	q := newWaiter(c.forHooks(ctx), c.engine)
	defer q.cancel(nil)
	q.binding, q.label, q.from, q.priority = b, c.label, c.from, c.priorityOf(w, b)
	if !b.shares {
		return b.engine.await(q)
	}
	b.enqueue(q) // before share looks, so that unlock does not miss q
	defer b.leaveQueue(q)
	if q.tooLarge = b.share(ctx, c, w); w.locked {
		return nil, 0, nil
	}
	r, waited, err := b.engine.await(q)
	if err == errHandedOver {
		if _ = b.adopt(ctx, c, w, q.adopted()); w.locked {
			return nil, 0, nil
		}
	}
	return r, waited, err
}

// share gives c a seat of the task on which no statement runs, if there is one, and
// w the seat's lock. The error tells why open rows were not read into memory.
func (b *Binding) share(ctx context.Context, c *Checkout, w *Want) (err error) {
	for _, s := range b.all() {
		if !b.tryHold(s) {
			continue
		}
		if err = b.adopt(ctx, c, w, s); w.locked {
			return nil
		}
	}
	return err
}

// adopt makes s, which is locked and on which the operation is counted, the seat of c. If s
// cannot be shared, adopt unlocks s. The error tells why open rows were not read into memory.
func (b *Binding) adopt(ctx context.Context, c *Checkout, w *Want, s *Seat) (err error) {
	w.has(s, true) // Done unlocks it, also after a panic of the driver
	if r := w.Conn; s.maySend(r) {
		if err = r.Session.ReadAhead(ctx); err == nil {
			others := b.use(w)
			c.share(s, others > 0)
			return nil
		}
	}
	c.Unlock(w)
	return err
}

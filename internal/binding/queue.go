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
func (b *Binding) obtain(ctx context.Context, c *Checkout, w *Want) error {
	if !c.goesOn(w) && !b.engine.admits(b, c.from) {
		return b.engine.pool.DrainingError()
	}
	taken := false
	defer func() { // also after a panic of the driver
		if !taken {
			b.unexpectConn()
		}
	}()
	r, waited, err := b.acquire(ctx, c, w, b.expectConn())
	switch {
	case err != nil:
		return c.notAcquired(ctx, waited, err)
	case w.locked:
		return nil
	}
	err = c.attachFor(ctx, w, r)
	taken = err == nil
	return err
}

// acquire takes a connection for w. first: the task has no connection, and waits for none, so w waits in the
// pool's queue. While a further statement of the task waits, the task may get a connection that the
// statement can share: contend looks for it.
func (b *Binding) acquire(ctx context.Context, c *Checkout, w *Want, first bool) (r *connpool.Conn, waited time.Duration, err error) {
	if (first || !b.shares) && c.from == nil {
		return b.engine.acquire(c.forHooks(ctx), b, c.priorityOf(w, b))
	}
	return b.contend(ctx, c, w)
}

// contend takes a connection, or shares one, for a binding that has connections or waits for one. If w.locked is true
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
		if _ = b.adopt(ctx, c, w, q.takeHandedSeat()); w.locked {
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
	w.has(s, op) // Done unlocks it, also after a panic of the driver
	if r := w.Conn; s.maySend(r) {
		if err = r.Session.ReadAhead(ctx); err == nil {
			done := touched
			if others := b.addUser(w); others > 0 {
				done = executed
			}
			c.share(s, done)
			return nil
		}
	}
	c.Unlock(w)
	return err
}

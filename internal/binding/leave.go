package binding

import (
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// This file ends operations and a checkout's use of its connection.

// Discard ends the checkout and the real connection with it.
func (c *Checkout) Discard() {
	if s := c.seat; s != nil && !c.rowsDetached() {
		if r := s.hold(); r != nil {
			r.Session.MarkUnusable()
			s.release(none)
		}
	}
	c.Detach()
}

// rowsDetached reports whether the checkout's rows are in memory, and it does not use their connection.
func (c *Checkout) rowsDetached() bool { return c.rows != nil && c.rows.Rows.Detached() }

// Idle reports whether the checkout has a connection and has left nothing on it: no transaction,
// no rows, no state.
func (c *Checkout) Idle() bool {
	b, s := c.binding, c.seat
	if b == nil || s == nil || c.tx != nil || c.lent != nil {
		return false
	}
	r := s.hold()
	if r == nil {
		return false
	}
	idle := !r.Session.Reading() && (b.shares || !s.checkPin(r).KeepsTask() && session.LeavesNothing(r.Session.Effect()))
	s.release(none)
	return idle
}

// Disown closes what o has prepared on the checkout's connection, if the checkout has a
// connection and nobody works on it.
func (c *Checkout) Disown(o *stmtcache.Owner) error {
	s := c.seat
	if s == nil || c.rowsDetached() || !s.lock.TryLock() {
		return nil
	}
	r := s.conn.Load()
	if r == nil {
		s.lock.Unlock()
		return nil
	}
	defer s.unlock(none) // also by a panic of the driver; the checkout's rows may be in memory since
	return r.Session.Disown(o)
}

// StandDown ends the checkout's use of w's connection, under the lock. The operation has the checkout's claim
// until Done. Other users stay.
func (c *Checkout) StandDown(w *Want) {
	w.claim = user
	c.letGo()
}

// MoveOn takes the checkout off a dead session, so that the operation can try another one. If the
// checkout's transaction was deferred and has not begun, it is deferred again. MoveOn unlocks the
// connection. The caller has to call Done afterwards.
func (c *Checkout) MoveOn(w *Want) {
	w.Retried = true
	c.engine.waitFor(&w.away)
	b, deferred := c.binding, c.tx
	c.StandDown(w)
	c.Unlock(w)
	if b.isPrivate() {
		c.unbind()
		if deferred != nil {
			deferred.deferAgain()
			c.tx = deferred
		}
	}
}

// Visit counts an operation that goes to another engine of the group, and may come back to e, also while e drains.
func (e *Engine) Visit(w *Want) { e.waitFor(&w.home) }

// waitFor counts an operation, until Done, as work that has begun and may have no connection for a while. by is who counts it.
func (e *Engine) waitFor(by **Engine) {
	if *by == nil {
		*by = e
		e.unattached.Add(1)
	}
}

// leaveSeat ends a checkout's use of its seat. It waits for nobody, unless rows are open. The checkout uses the seat
// again if nobody else has a claim on it, or will come: no transaction knows it.
func (c *Checkout) leaveSeat() {
	mine, open := c.mine, c.tx != nil
	s, rows := c.letGo()
	switch {
	case s == nil:
		c.mine = mine
	case rows != nil && rows.outlive(s):
	case s.leave(user) && s == mine && !open && !s.known:
		c.mine = s
	}
}

// leaveAfterPanic unlocks s, whose driver has panicked. ends: the claim of c ends, because database/sql does
// not give c back.
func (c *Checkout) leaveAfterPanic(s *Seat, ends bool) {
	own, private := none, s.binding.Load().isPrivate()
	if ends {
		own = user
		c.letGo()
	}
	s.release(own)
	if private {
		c.unbind()
	}
}

func (c *Checkout) unbind() {
	if b := c.binding; b != nil && !b.isPrivate() {
		b.checkouts.Add(-1)
	}
	c.binding, c.scope, c.from, c.tx = nil, nil, nil, nil
}

// Done ends an operation.
func (c *Checkout) Done(w *Want) {
	c.Unlock(w)
	if w.away != nil {
		w.away.unattached.Add(-1)
	}
	if w.home != nil {
		w.home.unattached.Add(-1)
	}
	if w.joined != nil {
		w.joined()
	}
}

// Unlock unlocks the seat, if the operation holds its lock.
func (c *Checkout) Unlock(w *Want) {
	if !w.locked {
		return
	}
	w.locked = false
	s, own := w.seat, w.claim
	if w.measured {
		w.measured = false
		w.Conn.Meter.EndOperation(s.pinnedBy(w.Conn))
	}
	w.claim = none
	if s.binding.Load().isPrivate() { // mostly
		s.unlock(own)
		return
	}
	s.release(own)
}

package pooldriver

import (
	"context"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// A task's connections: how they come, who may use them now, and how they go.

// seat is what a binding keeps of one of its connections, under its lock.
type seat struct {
	users    int    // checkouts that use it, and rows whose checkout has moved on
	ops      uint64 // operations so far: whether anything moves
	pin      pin    // why it is the task's session, after the last operation
	since    time.Time
	opener   *conn // whose operation made it the session
	tx       *tx   // begun by BeginTx, not ended
	inner    []*tx // savepoints, the innermost last
	warned   bool
	stateful bool          // statements have changed the session, as far as is known
	byHand   bool          // the outermost transaction that is open was begun by hand
	gone     bool          // the server has ended the transaction by an error
	hidden   bool          // a text said that a transaction begins, and nobody can be asked
	separate bool          // of a checkout that keeps to itself
	raw      chan struct{} // closed when Raw's function returns; nil: none runs
}

// begun reports whether a transaction of BeginTx's is open, or was when the
// connection died.
func (r *realConn) begun() bool { return r.seat.tx != nil || len(r.seat.inner) > 0 }

// innermost is the transaction or savepoint that a statement runs in now; nil
// where it was begun by hand.
func (r *realConn) innermost() *tx {
	if n := len(r.seat.inner); n > 0 {
		return r.seat.inner[n-1]
	}
	return r.seat.tx
}

// at is the transaction at that depth: 0 is the outermost, nil if it was begun by hand.
func (s *seat) at(depth int) *tx {
	if depth == 0 {
		return s.tx
	}
	return s.inner[depth-1]
}

// outlived is the outermost transaction whose context has ended. database/sql is
// about to roll it back, in a goroutine of its own; whoever comes first does it.
func (r *realConn) outlived() *tx {
	if t := r.seat.tx; t != nil && t.ctx.Err() != nil {
		return t
	}
	for _, t := range r.seat.inner {
		if t.ctx.Err() != nil {
			return t
		}
	}
	return nil
}

// inTx reports whether a transaction is open, also one begun by hand.
func (r *realConn) inTx() bool { return r.begun() || r.inDriversTx() }

// inDriversTx reports whether one is open by what the driver knows.
func (r *realConn) inDriversTx() bool {
	status := r.txStatus()
	return status == dialects.TxOpen || status == dialects.TxFailed
}

// lost reports whether a transaction is gone that has not been ended.
func (r *realConn) lost() bool { return (r.broken || r.seat.gone) && r.begun() }

func (r *realConn) lostTx() error {
	return &lostError{what: whatTx, since: r.seat.since, undone: !r.broken}
}

// pins looks at what keeps the connection, and whether it is still there: a
// context that ended may have closed it while rows were open.
func (r *realConn) pins() pins {
	status := r.txStatus()
	if status == dialects.TxLost {
		r.broken = true
	}
	return pins{r.seat.users, pinOf(r.begun(), status, r.effect, r.seat.hidden)}
}

// seat takes a connection of the pool into the binding, with its lock.
func (b *binding) seat(c *conn, t *operation, lease pool.Lease[*realConn]) {
	r := lease.Value()
	_ = r.lock.Lock(context.Background()) // somebody who came too late may have it for a moment
	r.lease = lease
	r.seat = seat{users: 1, separate: c.separate} // statements without a task have left their marks
	r.holder.Store(b)
	// From here on either the task's end sees the seat, or settle the end.
	c.hold(r)
	t.real, t.locked = r, true
}

// take locks r, if r is the binding's.
func (b *binding) take(r *realConn) bool {
	if r.holder.Load() != b {
		return false // need not wait for those who have it now
	}
	_ = r.lock.Lock(context.Background())
	if r.holder.Load() == b {
		return true
	}
	r.unlock()
	return false
}

// lockFor locks r, or returns ctx's error. A waiter that gives up may have held the lock for
// a moment, in which somebody has left r.
func (r *realConn) lockFor(ctx context.Context) error {
	err := r.lock.Lock(ctx)
	if err != nil && r.lock.TryLock() {
		r.unlock()
	}
	return err
}

// unlock unlocks r where nothing was done with it, whoever r belongs to:
// those who have left r meanwhile count on whoever holds the lock.
func (r *realConn) unlock() {
	b := r.holder.Load()
	if b == nil {
		r.lock.Unlock()
	} else if b.yield(r) {
		b.pass(r)
	}
}

// leave ends a checkout's use of its connection.
func (b *binding) leave(c *conn) {
	r, rows := c.real, c.open
	c.real, c.open = nil, nil
	if r == nil || b.ended.Load() {
		return
	}
	if rows != nil {
		if !rows.closed && rows.ahead.Load() == nil {
			_ = r.lock.Lock(context.Background())
			rows.soleOperation = false
			if rows.reclaimed || !rows.live {
				r.unlock()
			} else {
				rows.holds = true // what the checkout had, the rows have now
				b.pass(r)
				return
			}
		}
		if rows.reclaimed {
			return
		}
	}
	if r.lock.TryLock() {
		if r.holder.Load() == b { // not if the task has just ended
			r.seat.users--
		}
		b.pass(r)
		return
	}
	b.mu.Lock()
	b.pendingDetaches = append(b.pendingDetaches, r)
	b.mu.Unlock()
	b.leaving.Add(1)
	// Whoever holds the lock looks at leaving after it has unlocked, and we
	// look at the lock after leaving has counted us: one of us sees it.
	if r.lock.TryLock() {
		b.pass(r)
	}
}

// pass ends a use of r, and unlocks it: the binding's affairs are settled, and the
// connection goes back if nothing pins it any more. If it is not the binding's any
// more, b came too late, and has done nothing with it.
func (b *binding) pass(r *realConn) {
	for {
		if r.holder.Load() != b {
			r.unlock()
			return
		}
		if b.tidy(r) || !b.yield(r) {
			return
		}
	}
}

// yield unlocks r, and locks it again if there is something to be
// seen to on r that others could not.
func (b *binding) yield(r *realConn) (again bool) {
	raw := r.seat.raw != nil // its end comes here again
	r.lock.Unlock()
	return (b.leaving.Load() != 0 && b.isLeft(r) || b.ended.Load() && !raw) && r.lock.TryLock()
}

// isLeft reports whether a checkout waits to be counted out of r.
func (b *binding) isLeft(r *realConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.pendingDetaches, r)
}

// tidy decides, under r's lock, what becomes of r. gone: it has left the
// binding, and is unlocked.
func (b *binding) tidy(r *realConn) (gone bool) {
	if b.leaving.Load() != 0 {
		b.dismiss(r)
	}
	if b.ended.Load() {
		if r.seat.raw != nil {
			return false // its end comes here again
		}
		b.evict(r)
		return true
	}
	if r.seat.raw != nil {
		return false // the driver is the function's; nobody may ask it anything
	}
	r.seat.ops++
	p := r.pins()
	main := b.main.Load() == r
	if r.broken && p.pin != pinTx {
		// What it had as a session is gone. A transaction of BeginTx's is
		// known to be: the program has ended it.
		if main && (r.seat.stateful || r.seat.byHand) {
			b.lossBarrier.Store(&lostError{what: pinNames[pinRawTx], since: r.seat.since, state: r.seat.stateful, final: true})
		}
		p.pin = pinNone
	}
	if r.seat.separate || (p.pin == pinRawTx && p.checkouts == 0 && b.ambient() == AmbientSeparate) {
		p.pin = pinNone // as without a task
	}
	switch {
	case p.pin == pinNone:
		if main {
			b.inTx.Store(false) // before another one is
			b.main.Store(nil)
			main = false
		}
	case !main:
		// Not expected of the statement's text, or another one's session has
		// come first: then this one's lasts as long as its checkouts.
		if b.main.CompareAndSwap(nil, r) {
			r.seat.since = time.Now()
		} else {
			p.pin = pinNone
		}
	}
	r.seat.pin = p.pin
	if !r.broken {
		r.seat.stateful = r.effect&changesSession != 0
		r.seat.byHand = r.seat.tx == nil && (p.pin == pinTx || p.pin == pinRawTx)
	}
	if in := p.pin == pinTx || p.pin == pinRawTx; (main || in) && b.inTx.Load() != in {
		b.inTx.Store(in)
	}
	// A dead connection is of use to nobody: those who still have it are told.
	// Rows on it are read by their owner, who finds out and closes them.
	dead := r.broken && p.pin == pinNone && !r.begun() && r.live.Load() == nil
	if p.pinned() && !dead {
		return false
	}
	b.unbind(r)
	r.lock.Unlock()
	b.connector.takeBack(r)
	return true
}

// dismiss counts those out who have left r.
func (b *binding) dismiss(r *realConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.pendingDetaches[:0]
	for _, left := range b.pendingDetaches {
		if left == r {
			r.seat.users--
			b.leaving.Add(-1)
		} else {
			kept = append(kept, left)
		}
	}
	b.pendingDetaches = kept
}

// unbind takes r, which the caller has locked, out of the binding.
func (b *binding) unbind(r *realConn) {
	if b.main.Load() == r {
		b.main.Store(nil)
	}
	r.seat = seat{}
	r.holder.Store(nil)
	b.held.Add(-1)
}

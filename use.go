package pooldriver

import (
	"context"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// The sessions of a binding: how they come, who may use them now, and how they go.

// use is what a binding keeps of one of its sessions, under the session's lock.
type use struct {
	users    int           // checkouts that use it, and rows whose checkout has moved on
	ops      uint64        // operations so far: whether anything moves
	pin      pin           // why it is the task's session, after the last operation
	since    time.Time     // when it became that, or its transaction began
	opener   *checkout     // whose operation made it the session
	warned   bool          // that a statement has joined its transaction
	separate bool          // a checkout has it that keeps to itself
	raw      chan struct{} // closed when Raw's function returns; nil: none runs
}

// pins looks at what keeps the session, and whether it is still there.
func (r *realConn) pins() pins {
	status := r.CheckLost()
	return pins{r.use.users, pinOf(r.Begun(), status, r.Effect(), r.HiddenTx())}
}

// attach takes a connection of the pool into the binding, with its lock.
func (b *binding) attach(ctx context.Context, c *checkout, op *operation, lease pool.Lease[*realConn]) {
	r, waited := lease.Value(), lease.Waited()
	if waited > 0 {
		b.connector.stats.wait.Record(waited, 1)
		b.connector.stats.waited.Add(1)
	}
	if b.connector.config.Observer != nil {
		b.tellAcquired(ctx, c, lease)
	}
	_ = r.Lock(context.Background()) // somebody who came too late may have it for a moment
	r.lease = lease
	r.use = use{users: 1, separate: c.separate}
	r.Lend(!b.isPrivate())
	r.meter.Begin(c.label, op.text, waited, op.pins())
	op.measured = true
	r.holder.Store(b)
	if b.connector.config.LeakAfter > 0 {
		b.connector.leaks.watch()
	}
	// From here on either the task's end sees r, or settle the end.
	c.hold(r)
	op.real, op.locked = r, true
}

// obtain gives c a connection, and op the lock on it: one of the pool's or, where that
// would mean waiting for others while the task holds one, its own.
func (b *binding) obtain(ctx context.Context, c *checkout, op *operation) (err error) {
	cn := b.connector
	if !op.goesOn() && !cn.admits(b, c.from) {
		return cn.drainingError()
	}
	taken := false
	defer func() { // also after a panic of the driver
		if !taken {
			b.held.Add(-1)
		}
		if err != nil {
			cn.tellNotAcquired(ctx, c.label, b.task, err)
		}
	}()
	keep := func(lease pool.Lease[*realConn]) error {
		b.attach(ctx, c, op, lease)
		taken = true
		return nil
	}
	// A task that has nothing, and waits for nothing, waits as everybody does. Who comes
	// later may find that the task has a connection by then.
	if b.held.Add(1) == 1 && c.from == nil {
		lease, err := cn.acquire(ctx, nil, b)
		if err != nil {
			return err
		}
		return keep(lease)
	}
	for {
		lease, err := cn.pool.AcquireNow(ctx)
		if err == nil {
			if err := cn.broughtUp(ctx, lease); err != nil {
				return err
			}
			return keep(lease)
		}
		if err != pool.ErrNoneNow {
			return cn.acquireError(err, nil)
		}
		var tooLarge error
		if !c.separate {
			if tooLarge = b.share(ctx, c, op); op.locked {
				return nil
			}
		}
		lease, err = cn.await(ctx, &waiter{binding: b, label: c.label, from: c.from, separate: c.separate, tooLarge: tooLarge})
		if err == nil {
			return keep(lease)
		}
		if err != errOwnIsFree {
			return err
		}
	}
}

// share gives c a connection of the task that no statement is running on, if there is one,
// and op its lock. The error tells why rows stayed open.
func (b *binding) share(ctx context.Context, c *checkout, op *operation) (err error) {
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b || !r.TryLock() {
			continue
		}
		op.real, op.locked = r, true // a panic of the driver unlocks it, too
		if b.maySend(r) {
			if err = r.ReadAhead(ctx); err == nil {
				r.use.users++
				c.real, c.touched, c.executed = r, true, r.use.users > 1
				return nil
			}
		}
		c.unlock(op)
	}
	return err
}

// clearOthers reads the rows into memory that the task has open on connections other than
// r: on a database where they keep r from writing. What is too large stays, and the
// database has the last word.
func (b *binding) clearOthers(ctx context.Context, r *realConn) {
	for _, other := range b.connector.connections() {
		if other == r || other.holder.Load() != b || other.Rows() == nil || !other.TryLock() {
			continue
		}
		func() {
			defer b.release(other) // also by a panic of the driver
			if other.holder.Load() == b && !other.use.separate && other.use.raw == nil {
				_ = other.ReadAhead(ctx)
			}
		}()
	}
}

// take locks r, if it is the binding's.
func (b *binding) take(r *realConn) bool {
	if r.holder.Load() != b {
		return false // need not wait for those who have it now
	}
	_ = r.Lock(context.Background())
	if r.holder.Load() == b {
		return true
	}
	r.unlockAndRecheck()
	return false
}

// lockFor locks r, or returns ctx's error. A waiter that gives up may have had the lock for
// a moment; checkouts that left meanwhile are counted out here.
func (r *realConn) lockFor(ctx context.Context) error {
	err := r.Lock(ctx)
	if err != nil && r.TryLock() {
		r.unlockAndRecheck()
	}
	return err
}

// unlockAndRecheck unlocks r where nothing was done with it, whoever it belongs to:
// checkouts that have left r meanwhile count on whoever holds the lock.
func (r *realConn) unlockAndRecheck() {
	b := r.holder.Load()
	if b == nil {
		r.Unlock()
	} else if b.unlock(r) {
		b.release(r)
	}
}

// unlock unlocks r, and locks it again if there is something to be done on r that others
// could not do.
func (b *binding) unlock(r *realConn) (again bool) {
	raw := r.use.raw != nil // its end comes here again
	r.Unlock()
	return (b.leaving.Load() != 0 && b.isLeft(r) || b.ended.Load() && !raw) && r.TryLock()
}

// release ends an operation on r, and unlocks it: the binding's affairs are settled, and r
// goes back if nothing pins it any more. If r is not the binding's any more, b came too
// late, and has done nothing with it.
func (b *binding) release(r *realConn) {
	for {
		if r.holder.Load() != b {
			r.unlockAndRecheck()
			return
		}
		if b.releaseIfUnpinned(r) || !b.unlock(r) {
			return
		}
	}
}

// releaseIfUnpinned decides, under r's lock, what becomes of r. gone: it has left the
// binding, and is unlocked.
func (b *binding) releaseIfUnpinned(r *realConn) (gone bool) {
	if b.leaving.Load() != 0 {
		b.completeDetaches(r)
	}
	if r.use.raw != nil {
		return false // the driver is the function's, whose end comes here again
	}
	if b.ended.Load() {
		b.evict(r)
		return true
	}
	if b.isPrivate() {
		if r.use.users > 0 {
			return false
		}
	} else if b.keeps(r) {
		return false
	}
	b.unbind(r)
	r.Unlock()
	b.connector.takeBack(r, b.task)
	return true
}

// keeps decides whether r stays at the task, and whether it is its main session.
func (b *binding) keeps(r *realConn) bool {
	r.use.ops++
	p := r.pins()
	if r.Unusable() && p.pin != pinTx {
		b.loseState(r)
		p.pin = pinNone
	}
	if r.use.separate || p.pin == pinRawTx && p.checkouts == 0 && b.ambient() == AmbientSeparate {
		p.pin = pinNone // as without a task
	}
	p.pin = b.electMain(r, p.pin)
	r.use.pin = p.pin
	inTx := p.pin == pinTx || p.pin == pinRawTx
	r.Observe(inTx)
	if (inTx || b.main.Load() == r) && b.inTx.Load() != inTx {
		b.inTx.Store(inTx)
	}
	// A dead connection is of use to nobody: those who still have it are told. Rows on
	// it are read by their owner, who finds out and closes them.
	dead := r.Unusable() && p.pin == pinNone && !r.Begun() && r.Rows() == nil
	return p.pinned() && !dead
}

// loseState raises the loss barrier if what r had as the main session is gone. A
// transaction of BeginTx's is known to be: the program has ended it.
func (b *binding) loseState(r *realConn) {
	if b.main.Load() == r && (r.Stateful() || r.ByHand()) {
		b.lossBarrier.Store(r.LostState(pinNames[pinRawTx], r.use.since))
	}
}

// electMain makes r the main session if something pins it, and ends that if nothing does.
// It returns what pins r as the main session.
func (b *binding) electMain(r *realConn, why pin) pin {
	main := b.main.Load() == r
	switch {
	case why == pinNone && main:
		b.inTx.Store(false) // before another one is
		b.main.Store(nil)
	case why != pinNone && !main:
		// Not expected of the statement's text, or another session has come first: then
		// this one's lasts as long as its checkouts.
		if !b.main.CompareAndSwap(nil, r) {
			return pinNone
		}
		r.use.since = time.Now()
	}
	return why
}

// settled reports whether the last statement leaves nothing to decide: it changed nothing
// but data, on a session that is not the main one, or in a transaction that is open as
// before.
func (r *realConn) settled(main bool) bool {
	if !session.LeavesNothing(r.Effect()) || !r.Healthy() {
		return false
	}
	if main {
		return r.use.pin == pinTx && r.HasTx()
	}
	return r.use.pin == pinNone && !r.Begun()
}

// isLeft reports whether a checkout waits to be counted out of r.
func (b *binding) isLeft(r *realConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.pendingDetaches, r)
}

// completeDetaches counts those out who have left r.
func (b *binding) completeDetaches(r *realConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.pendingDetaches[:0]
	for _, left := range b.pendingDetaches {
		if left == r {
			r.use.users--
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
	r.use = use{}
	r.meter.End()
	r.GiveBack()
	r.holder.Store(nil)
	if !b.isPrivate() {
		b.held.Add(-1)
	}
}

// detach ends a checkout's use of its connection.
func (b *binding) detach(c *checkout) {
	r, rows := c.real, c.open
	c.real, c.open = nil, nil
	if r == nil || b.ended.Load() {
		return
	}
	if rows != nil && b.detachRows(r, rows) {
		return
	}
	if r.TryLock() {
		if r.holder.Load() == b { // not if the task has just ended
			r.use.users--
		}
		b.release(r)
		return
	}
	b.mu.Lock()
	b.pendingDetaches = append(b.pendingDetaches, r)
	b.mu.Unlock()
	b.leaving.Add(1)
	// Whoever holds the lock looks at leaving after it has unlocked, and we look at the
	// lock after leaving has counted us: one of us sees it.
	if r.TryLock() {
		b.release(r)
	}
}

// detachRows is detach where the checkout has opened rows, and reports whether it is done.
// Rows that are open go on using the connection in the place of their checkout.
func (b *binding) detachRows(r *realConn, rows *rows) bool {
	if rows.Buffer() != nil || rows.closed {
		return rows.Detached()
	}
	_ = r.Lock(context.Background())
	rows.Attach()
	if rows.Detached() || !rows.Live() {
		detached := rows.Detached()
		r.unlockAndRecheck()
		return detached
	}
	rows.Keep()
	b.release(r)
	return true
}

// maySend reports, under r's lock, whether any statement of the task may run on r.
func (b *binding) maySend(r *realConn) bool {
	return r.holder.Load() == b && !r.use.separate && !r.Unusable() && r.use.raw == nil
}

package pooldriver

import (
	"context"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// This file attaches sessions to a binding, decides which checkouts may use them, and lets
// them go.

// use is what a binding records of one of its sessions. The session's lock protects it.
type use struct {
	users  int           // checkouts that use it, and open rows whose checkout has ended
	ops    uint64        // operations so far: shows whether the session makes progress
	pin    pinning.Pin   // what pinned the session after the last operation; None: nothing keeps it at its task
	since  time.Time     // when the session was pinned, or its transaction began
	opener *checkout     // the last one whose statement may have begun a transaction
	warned bool          // the log knows that a statement has joined the transaction
	raw    chan struct{} // closed when Raw's function returns; nil: none runs
}

// pin returns why r is held, and checks whether the connection is lost.
func (r *realConn) pin() pinning.Pin {
	f := r.facts()
	f.Status = r.CheckLost()
	return pinning.Of(f)
}

// attach takes r, which comes from the pool, into the binding, and locks it.
func (b *binding) attach(ctx context.Context, c *checkout, op *operation, r *realConn) {
	waited := r.Waited()
	if waited > 0 {
		b.connector.report.Waited(waited)
	}
	if b.connector.report.HearsAcquired() {
		b.tellAcquired(ctx, c, r)
	}
	_ = r.Lock(context.Background()) // an earlier user that came too late may hold the lock for a moment
	r.use = use{users: 1}
	if b.shares {
		r.values = c.values
	}
	r.Lend(b.shares)
	r.Meter.Begin(c.label, op.text, waited, op.pins())
	op.measured, op.counted = true, r
	r.holder.Store(b)
	if b.connector.config.LeakAfter > 0 {
		b.connector.leaks.watch()
	}
	// From here on either the task's end finds r, or settle finds that the task has ended.
	c.hold(r)
	op.real, op.locked = r, true
}

// obtain gives c a connection, and op the connection's lock. The connection comes from the
// pool. If op would have to wait while the task holds a connection, op shares that one
// instead.
func (b *binding) obtain(ctx context.Context, c *checkout, op *operation) (err error) {
	cn := b.connector
	if !op.goesOn() && !cn.admits(b, c.from) {
		return cn.pool.DrainingError()
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
	keep := func(r *realConn) error {
		b.attach(ctx, c, op, r)
		taken = true
		return nil
	}
	// A task that has no connection, and waits for none, waits in the pool's queue. While
	// a further statement of the task waits, the task may get a connection that the
	// statement can share: the loop below looks for it.
	if first := b.held.Add(1) == 1; (first || !b.shares) && c.from == nil {
		r, err := cn.acquire(c.forHooks(ctx), nil, b)
		if err != nil {
			return err
		}
		return keep(r)
	}
	r, err := b.contend(ctx, c, op)
	if err != nil || op.locked {
		return err
	}
	return keep(r)
}

// contend is obtain for a binding that has connections, or waits for one. If op.locked, op
// shares one of them.
func (b *binding) contend(ctx context.Context, c *checkout, op *operation) (r *realConn, err error) {
	cn, hooks := b.connector, c.forHooks(ctx)
	for {
		if r, err = cn.acquireNow(hooks); err != pool.ErrNoneNow {
			return r, err
		}
		var tooLarge error
		if b.shares {
			if tooLarge = b.share(ctx, c, op); op.locked {
				return nil, nil
			}
		}
		r, err = cn.await(hooks, &waiter{binding: b, label: c.label, from: c.from, tooLarge: tooLarge})
		if err != errOwnIsFree {
			return r, err
		}
	}
}

// share gives c a connection of the task on which no statement runs, if there is one, and
// op the connection's lock. The error tells why open rows were not read into memory.
func (b *binding) share(ctx context.Context, c *checkout, op *operation) (err error) {
	for r := range b.connector.connections() {
		if r.holder.Load() != b || !r.TryLock() {
			continue
		}
		op.real, op.locked = r, true // also after a panic of the driver, done unlocks it
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

// clearOthers reads into memory the rows that the task has open on connections other than
// r: under Traits.WritesAlone they block a write on r. Rows that are too large stay open.
// Then the database decides whether the write succeeds.
func (b *binding) clearOthers(ctx context.Context, r *realConn) {
	for other := range b.connector.connections() {
		if other == r || other.holder.Load() != b || other.Rows() == nil || !other.TryLock() {
			continue
		}
		func() {
			defer b.release(other) // also by a panic of the driver
			if other.holder.Load() == b && other.use.raw == nil {
				_ = other.ReadAhead(ctx)
			}
		}()
	}
}

// take locks r, if it is the binding's.
func (b *binding) take(r *realConn) bool {
	if r.holder.Load() != b {
		return false // do not wait for another borrower's lock
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

// unlockAndRecheck unlocks r after a caller that has done nothing with r. r may belong to
// any binding. Checkouts that left r meanwhile rely on the holder of the lock to count
// them out.
func (r *realConn) unlockAndRecheck() {
	b := r.holder.Load()
	if b == nil {
		r.Unlock()
	} else if b.unlock(r) {
		b.release(r)
	}
}

// unlock unlocks r. again: r is locked once more, because others have left work on r while
// it was locked.
func (b *binding) unlock(r *realConn) (again bool) {
	raw := r.use.raw != nil // unlock is called again when Raw's function returns
	r.Unlock()
	return (b.leaving.Load() != 0 && b.isLeft(r) || b.ended.Load() && !raw) && r.TryLock()
}

// release ends an operation on r, and unlocks r. If nothing pins r any more, r goes back
// to the pool. If r has left b, the operation came too late and has done nothing with r.
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

// releaseIfUnpinned decides, under r's lock, whether r stays in the binding. gone: r has
// left the binding, and is unlocked.
func (b *binding) releaseIfUnpinned(r *realConn) (gone bool) {
	if b.leaving.Load() != 0 {
		b.completeDetaches(r)
	}
	if r.use.raw != nil {
		return false // Raw's function uses the driver; when it returns, r is released again
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
	if b.task == nil {
		r.GiveBack(nil)
	} else {
		r.GiveBack(b.task)
	}
	return true
}

// keeps decides whether r stays with the task, and whether r is the main session.
func (b *binding) keeps(r *realConn) bool {
	r.use.ops++
	pin := r.pin()
	if r.Unusable() && pin != pinning.Tx {
		b.loseState(r)
		pin = pinning.None
	}
	if !b.shares || !pin.KeepsTask() { // without sharing it is as without a task
		pin = pinning.None
	}
	pin = b.electMain(r, pin)
	r.use.pin = pin
	inTx := pin.InTx()
	r.Observe(inTx)
	if (inTx || b.main.Load() == r) && b.inTx.Load() != inTx {
		b.inTx.Store(inTx)
	}
	// A dead connection leaves, even if checkouts use it: their next operation gets the
	// error. If rows are open on it, it stays until their owner has found the error and
	// closed them.
	dead := r.Unusable() && pin == pinning.None && !r.Begun() && r.Rows() == nil
	return (r.use.users > 0 || pin != pinning.None) && !dead
}

// loseState raises the loss barrier if r was the main session, and had session state or a
// transaction begun by hand. For a transaction of BeginTx no barrier is needed here: the
// program has ended it.
func (b *binding) loseState(r *realConn) {
	if b.main.Load() == r && (r.Stateful() || r.ByHand()) {
		b.lossBarrier.Store(r.LostState("a transaction begun by hand", r.use.since))
	}
}

// electMain makes r the main session if something pins r. If nothing does, r is the main
// session no longer. It returns what pins r as the main session.
func (b *binding) electMain(r *realConn, why pinning.Pin) pinning.Pin {
	main := b.main.Load() == r
	switch {
	case why == pinning.None && main:
		b.inTx.Store(false) // before another connection becomes the main one
		b.main.Store(nil)
	case why != pinning.None && !main:
		// The statement's text did not show that it needs a session. If another session is
		// the main one already, the state of r ends with the checkouts that use r.
		if !b.main.CompareAndSwap(nil, r) {
			return pinning.None
		}
		r.use.since = time.Now()
	}
	return why
}

// settled reports whether keeps has nothing to decide: the last statement changed only
// data, and r is not the main session or is still in the same transaction.
func (r *realConn) settled(main bool) bool {
	if !session.LeavesNothing(r.Effect()) || !r.Healthy() {
		return false
	}
	if main {
		return r.use.pin == pinning.Tx && r.HasTx()
	}
	return r.use.pin == pinning.None && !r.Begun()
}

// isLeft reports whether a detach from r is pending.
func (b *binding) isLeft(r *realConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.pendingDetaches, r)
}

// completeDetaches counts out the checkouts that have left r.
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
	if b.shares {
		r.values = nil
	}
	r.Meter.End()
	r.Session.GiveBack()
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
	// The holder of the lock reads leaving after it has unlocked. We have raised leaving,
	// and try the lock now. So at least one of the two completes the detach.
	if r.TryLock() {
		b.release(r)
	}
}

// detachRows is detach for a checkout that has opened rows. It reports whether the detach
// is complete. Open rows go on using the connection in place of their checkout.
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
	return r.holder.Load() == b && !r.Unusable() && r.use.raw == nil
}

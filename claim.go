package pooldriver

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// This file attaches sessions to a binding, decides which checkouts may use them, and lets
// them go.
//
// Who works on a session has a claim on it, and the lock: its users (checkouts, and rows whose
// checkout has ended) and who peeks at it for a moment (a statement that waits for the lock, one
// who reads rows ahead for others, a function of Raw). Claims are counted under the binding's
// mu, without the session's lock, which may be held for as long as the driver works. So a
// checkout ends without waiting: who ends the last claim, with nothing pinned, knows that nobody
// is at work, and gives the session back.
//
// A session leaves although there are claims in two cases: it is dead, or its task has ended.
// It does so under its lock, and whoever gets the lock then sees that holder is another one, and
// touches nothing. A dead session is never lent again, and a task that has ended gets none, so an
// old claim is never taken for one on a later lending.

// use is what a binding records of one of its sessions. The binding's mu protects users, peeks
// and pin (which is set under the session's lock, too), the session's lock the rest.
type use struct {
	users  int           // checkouts that use it, and open rows whose checkout has ended
	peeks  int           // who waits for its lock, or looks at it for others, for a moment
	ops    uint64        // operations so far: shows whether the session makes progress
	pin    pinning.Pin   // what pinned the session after the last operation; None: nothing keeps it at its task
	since  time.Time     // when the session was pinned, or its transaction began
	opener *checkout     // the last one whose statement may have begun a transaction
	warned bool          // the log knows that a statement has joined the transaction
	raw    chan struct{} // closed when Raw's function returns; nil: none runs
	left   bool          // the task has ended while raw was set: whoever ends that takes the session back
}

// moves counts an operation.
func (u *use) moves() { u.ops++ }

// begin is called when something begins that pins the session: a transaction, or its state.
func (u *use) begin() { u.since, u.warned = time.Now(), false }

// attach takes r, which comes from the pool, into the binding, and locks it.
func (b *binding) attach(ctx context.Context, c *checkout, op *operation, r *realConn) error {
	waited := r.Waited()
	if waited > 0 {
		b.connector.report.Waited(waited)
	}
	if b.connector.report.HearsAcquired() {
		b.tellAcquired(ctx, c, r)
	}
	_ = r.Lock(context.Background()) // an earlier user that came too late may hold the lock for a moment
	if b.shares {
		r.values = c.values
	}
	r.Lend(b.shares)
	r.Meter.Begin(c.label, op.text, waited, op.pins())
	if !b.receive(r) {
		r.Unlock()
		b.giveBack(r)
		return b.task.EndedError()
	}
	op.measured, op.counted = true, r
	if b.connector.config.LeakAfter > 0 {
		b.connector.leaks.watch()
	}
	c.hold(r)
	op.real, op.locked = r, true
	return nil
}

// receive takes r, which nobody has, into the binding. It reports false if the task has ended:
// its end finds what was received before.
func (b *binding) receive(r *realConn) bool {
	r.use.users = 1
	if b.isPrivate() { // it has no end, and nobody knows that it has r before holder says so
		r.holder.Store(b)
		return true
	}
	b.mu.Lock()
	ended := b.ended.Load()
	if !ended {
		r.holder.Store(b)
	}
	b.mu.Unlock()
	return !ended
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
		if err := b.attach(ctx, c, op, r); err != nil {
			return err
		}
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
		if !b.tryPeek(r) {
			continue
		}
		op.real, op.locked, op.peeks = r, true, true // also after a panic of the driver, done unlocks it
		if b.maySend(r) {
			if err = r.ReadAhead(ctx); err == nil {
				others := b.joined(op, r)
				c.share(r, others > 0)
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
		if other == r || other.Rows() == nil || !b.tryPeek(other) {
			continue
		}
		func() {
			defer b.release(other, true) // also by a panic of the driver
			if other.use.raw == nil {
				_ = other.ReadAhead(ctx)
			}
		}()
	}
}

// peek keeps r in the binding until unpeek or release, if it is the binding's. Whoever works on
// a session is one of its users, or peeks.
func (b *binding) peek(r *realConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.holder.Load() != b {
		return false
	}
	r.use.peeks++
	return true
}

// unpeek ends a peek at a session that is not locked.
func (b *binding) unpeek(r *realConn) { b.leave(r, &r.use.peeks) }

// tryPeek peeks at r and locks it, if it is the binding's and nobody works on it. endPeek or
// release ends that.
func (b *binding) tryPeek(r *realConn) bool {
	if r.holder.Load() != b || !b.peek(r) { // most are not the binding's: mu is left alone
		return false
	}
	if r.TryLock() {
		if r.holder.Load() == b {
			return true
		}
		r.Unlock()
	}
	b.unpeek(r)
	return false
}

// tryPeek is binding.tryPeek for whichever binding has r, which it returns; nil: it has failed.
func (r *realConn) tryPeek() *binding {
	if b := r.holder.Load(); b != nil && b.tryPeek(r) {
		return b
	}
	return nil
}

// endPeek ends what tryPeek began, where nothing was done with the session.
func (b *binding) endPeek(r *realConn) {
	r.Unlock()
	b.unpeek(r)
}

// take locks r, if it is the binding's, for one of its users.
func (b *binding) take(r *realConn) bool {
	if b.isPrivate() {
		if r.holder.Load() != b { // else the caller's own claim keeps it
			return false
		}
	} else if !b.peek(r) {
		return false
	}
	_ = r.Lock(context.Background())
	if r.holder.Load() == b {
		return true
	}
	r.Unlock() // it was dead, or the task has ended
	return false
}

// untake ends what take began.
func (b *binding) untake(r *realConn) { b.release(r, !b.isPrivate()) }

// lockFor locks r for an operation of c. Where c does not use r yet, op peeks until c does.
// again: r has left the binding.
func (b *binding) lockFor(ctx context.Context, c *checkout, op *operation, r *realConn) (again bool, _ error) {
	if op.peeks = r != c.real; op.peeks && !b.peek(r) {
		op.peeks = false
		return true, nil
	}
	if err := r.Lock(ctx); err != nil {
		if op.peeks {
			op.peeks = false
			b.unpeek(r)
		}
		return false, err
	}
	op.real, op.locked = r, true
	return false, nil
}

// joined makes the checkout of op, which peeks, a user of r. others are its other users.
func (b *binding) joined(op *operation, r *realConn) (others int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others = r.use.users
	r.use.users++
	r.use.peeks--
	op.peeks = false
	return others
}

// users is how many use r.
func (b *binding) users(r *realConn) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.use.users
}

// countOut ends the claim of one of r's users, who holds r's lock and releases r afterwards.
func (b *binding) countOut(r *realConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.use.users--
}

// leave ends a claim of somebody who does not hold r's lock: one of r's users or peeks. If it
// was the last, and nothing pins r, nobody can be at work on r, and r goes back to the pool.
func (b *binding) leave(r *realConn, claims *int) {
	b.mu.Lock()
	out := false
	if r.holder.Load() == b {
		*claims--
		out = b.mayLeaveLocked(r)
	}
	b.mu.Unlock()
	if out {
		b.giveBack(r)
	}
}

// mayLeaveLocked takes r out of the binding if nobody has a claim on it and nothing pins it.
// After the task's end that is the end's to do.
func (b *binding) mayLeaveLocked(r *realConn) bool {
	if b.ended.Load() || r.use.users > 0 || r.use.peeks > 0 || r.use.pin != pinning.None {
		return false
	}
	b.takeOutLocked(r)
	return true
}

func (b *binding) takeOutLocked(r *realConn) {
	r.holder.Store(nil)
	r.use.users, r.use.peeks = 0, 0
	if b.isPrivate() {
		return // it sets no more of use than that, and raw, which is over
	}
	r.use = use{}
	if b.main.Load() == r {
		b.main.Store(nil)
	}
	b.held.Add(-1)
}

// giveBack gives r, which was taken out of the binding, back to the pool.
func (b *binding) giveBack(r *realConn) {
	b.restore(r)
	if b.task == nil {
		r.GiveBack(nil)
	} else {
		r.GiveBack(b.task)
	}
}

// restore ends what attach began, when r was taken out.
func (b *binding) restore(r *realConn) {
	if b.shares {
		r.values = nil
	}
	r.Meter.End()
	r.Session.GiveBack()
}

// release ends an operation on r, under r's lock, and unlocks r. peeks: a peek of the caller's
// ends, too. It stores why r is held, and r goes back to the pool if nothing holds it.
func (b *binding) release(r *realConn, peeks bool) {
	if r.holder.Load() != b {
		r.Unlock() // it was dead, or the task has ended
		return
	}
	if r.use.left && r.use.raw == nil {
		b.evict(r)
		return
	}
	pin, dead := pinning.None, false
	if !b.isPrivate() && r.use.raw == nil {
		pin, dead = b.judge(r)
	}
	b.mu.Lock()
	if peeks {
		r.use.peeks--
	}
	out := false
	if r.use.raw == nil {
		r.use.pin = pin
		if out = dead && !b.ended.Load(); out {
			b.takeOutLocked(r)
		} else {
			out = b.mayLeaveLocked(r)
		}
	}
	b.mu.Unlock()
	r.Unlock()
	if out {
		b.giveBack(r)
	}
}

// judge says why r is held, after an operation in a task. dead: r leaves although checkouts use
// it: their next operation gets the error. If rows are open on it, it stays until their owner
// has found the error and closed them.
func (b *binding) judge(r *realConn) (pin pinning.Pin, dead bool) {
	r.use.moves()
	pin = r.pin()
	if r.Unusable() && pin != pinning.Tx {
		b.loseState(r)
		pin = pinning.None
	}
	if !b.shares || !pin.KeepsTask() { // without sharing it is as without a task
		pin = pinning.None
	}
	pin = b.electMain(r, pin)
	r.Observe(pin.InTx())
	return pin, r.Unusable() && pin == pinning.None && !r.Begun() && r.Rows() == nil
}

// loseState raises the loss barrier if r was the main session, and had session state or a
// transaction begun by hand. For a transaction of BeginTx no barrier is needed here: the
// program has ended it.
func (b *binding) loseState(r *realConn) {
	if b.main.Load() == r && (r.Stateful() || r.ByHand()) {
		b.raiseBarrier(r.LostState("a transaction begun by hand", r.use.since))
	}
}

// electMain makes r the main session if something pins r. If nothing does, r is the main
// session no longer. It returns what pins r as the main session.
func (b *binding) electMain(r *realConn, why pinning.Pin) pinning.Pin {
	main := b.main.Load() == r
	switch {
	case why == pinning.None && main:
		b.main.Store(nil)
	case why != pinning.None && !main:
		// The statement's text did not show that it needs a session. If another session is
		// the main one already, the state of r ends with the checkouts that use r.
		if !b.main.CompareAndSwap(nil, r) {
			return pinning.None
		}
		r.use.begin()
	}
	return why
}

// settled reports whether judge has nothing to decide: the last statement changed only
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

// detach ends a checkout's use of its connection. It waits for nobody, unless rows are open.
func (b *binding) detach(c *checkout) {
	r, rows := c.letGo()
	if r == nil || rows != nil && b.detachRows(r, rows) {
		return
	}
	b.leave(r, &r.use.users)
}

// detachRows is detach for a checkout that has opened rows. It reports whether the detach
// is complete. Open rows go on using the connection in place of their checkout.
func (b *binding) detachRows(r *realConn, rows *rows) bool {
	if rows.Buffer() != nil || rows.closed {
		return rows.Detached()
	}
	_ = r.Lock(context.Background())
	defer r.Unlock()
	rows.Attach()
	if rows.Detached() || !rows.Live() {
		return rows.Detached()
	}
	rows.Keep()
	return true
}

// maySend reports, under r's lock, whether any statement of the task may run on r.
func (b *binding) maySend(r *realConn) bool {
	return r.holder.Load() == b && !r.Unusable() && r.use.raw == nil
}

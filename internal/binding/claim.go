package binding

import (
	"context"
	"database/sql"
	"time"

	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/pool"
)

// This file attaches sessions to a binding, decides which checkouts may use them, and lets
// them go.
//
// Work on a session needs the session's lock and a claim on the session. There are two kinds of
// claims. A user is a checkout, or rows whose checkout has ended. A peek is for a moment: of a
// statement that waits for the lock, of a reader that reads rows ahead for others, or of a function
// of Raw. The binding's mu protects the claims, because the session's lock may be held for as long
// as the driver works. So a checkout ends without a wait. The end of the last claim, while nothing
// pins the session, shows that no work goes on, and gives the session back.
//
// In two cases a session leaves although there are claims: it is dead, or its task has ended. It
// leaves under its lock. A caller that gets the lock after that sees that holder has changed, and
// does not touch the session. A dead session is never lent again, and a task that has ended gets no
// session, so an old claim never counts as a claim on a later use of the session.

// attach takes r, which comes from the pool, into the binding of c, and locks it. text is the
// statement's, or nil. pins: the operation is known to hold r after its end.
func (b *Binding) attach(ctx context.Context, c *Checkout, r *Conn, text *string, pins bool) error {
	waited := r.Waited()
	if waited > 0 {
		b.engine.report.Waited(waited)
	}
	if b.engine.report.HearsAcquired() {
		// If the Observer's function ends the goroutine, the connection goes back.
		b.engine.report.Acquired(ctx, r.Waited(), WhoIs(c.label, b.task), r.Return)
	}
	_ = r.Lock(context.Background()) // an earlier user that came too late may hold the lock for a moment
	if b.shares {
		r.values = c.values
	}
	r.Lend(b.shares)
	r.Meter.Begin(c.label, text, waited, pins)
	if b.isPrivate() { // b has no task that ends, and before holder is stored nobody finds r in b
		r.use.users = 1
		r.holder.Store(b)
	} else if !b.receive(r) {
		r.Unlock()
		b.giveBack(r)
		return b.task.EndedError()
	}
	if taken := b.engine.config.Taken; taken != nil {
		taken()
	}
	c.hold(r)
	return nil
}

// attachFor is attach for the operation w.
func (b *Binding) attachFor(ctx context.Context, c *Checkout, w *Want, r *Conn) error {
	if err := b.attach(ctx, c, r, w.TextAt, w.pins()); err != nil {
		return err
	}
	w.Continue(r)
	return nil
}

// receive takes r, which nobody has, into the binding of a task. It reports false if the task has ended:
// the task's end finds only connections that were received before.
func (b *Binding) receive(r *Conn) bool {
	b.mu.Lock()
	r.use.users = 1
	ended := b.ended.Load()
	if !ended {
		r.holder.Store(b)
	}
	b.mu.Unlock()
	return !ended
}

// obtain gives c a connection, and w the connection's lock. The connection comes from the pool.
// If w would have to wait while the task holds a connection, w shares the task's connection
// instead.
func (b *Binding) obtain(ctx context.Context, c *Checkout, w *Want) (err error) {
	e := b.engine
	if !w.goesOn() && !e.admits(b, c.from) {
		return e.pool.DrainingError()
	}
	taken, waited := false, time.Duration(0)
	defer func() { // also after a panic of the driver
		if !taken {
			b.held.Add(-1)
		}
		if err != nil {
			err = e.notAcquired(ctx, c.label, b.task, waited, err)
		}
	}()
	keep := func(r *Conn) error {
		if err := b.attachFor(ctx, c, w, r); err != nil {
			return err
		}
		taken = true
		return nil
	}
	// A task that has no connection, and waits for none, waits in the pool's queue. While
	// a further statement of the task waits, the task may get a connection that the
	// statement can share: contend looks for it.
	if first := b.held.Add(1) == 1; (first || !b.shares) && c.from == nil {
		var r *Conn
		if r, waited, err = e.acquire(c.forHooks(ctx), b); err != nil {
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
// afterwards, w shares a connection of the binding.
func (b *Binding) contend(ctx context.Context, c *Checkout, w *Want) (r *Conn, waited time.Duration, err error) {
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
// shares a connection of the task. errHandedOver: unlock has handed over a connection of the task
// that w could not share.
func (b *Binding) queue(ctx context.Context, c *Checkout, w *Want) (_ *Conn, waited time.Duration, _ error) {
	q := newWaiter(c.forHooks(ctx))
	defer q.cancel(nil)
	q.binding, q.label, q.from = b, c.label, c.from
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

// share gives c a connection of the task on which no statement runs, if there is one, and
// w the connection's lock. The error tells why open rows were not read into memory.
func (b *Binding) share(ctx context.Context, c *Checkout, w *Want) (err error) {
	for r := range b.conns() {
		if !b.tryPeek(r) {
			continue
		}
		if err = b.adopt(ctx, c, w, r); w.locked {
			return nil
		}
	}
	return err
}

// adopt makes r, at which the caller peeks and which it has locked, the connection of c. If r
// cannot be shared, adopt unlocks r. The error tells why open rows were not read into memory.
func (b *Binding) adopt(ctx context.Context, c *Checkout, w *Want, r *Conn) (err error) {
	w.has(r) // Done unlocks r, also after a panic of the driver
	w.peeks = true
	if r.maySend() {
		if err = r.ReadAhead(ctx); err == nil {
			others := b.joined(w, r)
			c.share(r, others > 0)
			return nil
		}
	}
	c.Unlock(w)
	return err
}

// clearOthers reads into memory the rows that the task has open on connections other than
// r: under Traits.WritesAlone they block a write on r. Rows that are too large stay open.
// Then the database decides whether the write succeeds.
func (b *Binding) clearOthers(ctx context.Context, r *Conn) {
	for other := range b.conns() {
		if other == r || other.Rows() == nil || !b.tryPeek(other) {
			continue
		}
		func() {
			defer b.release(other, true) // also after a panic of the driver
			if other.use.raw == nil {
				_ = other.ReadAhead(ctx)
			}
		}()
	}
}

// peek keeps r in the binding until unpeek or release, if r is the binding's. It reports whether r is
// the binding's.
func (b *Binding) peek(r *Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.holder.Load() != b {
		return false
	}
	r.use.peeks++
	return true
}

// unpeek ends a peek at a session that is not locked.
func (b *Binding) unpeek(r *Conn) { b.leave(r, &r.use.peeks) }

// tryPeek peeks at r and locks r, if r is the binding's and nobody works on it. endPeek or
// release ends that.
func (b *Binding) tryPeek(r *Conn) bool {
	if !b.peek(r) {
		return false
	}
	if r.TryLock() {
		if r.holder.Load() == b {
			return true
		}
		r.unlock()
	}
	b.unpeek(r)
	return false
}

// endPeek ends a peek of tryPeek, if nothing was done with the session.
func (b *Binding) endPeek(r *Conn) {
	b.unlock(r)
	b.unpeek(r)
}

// take locks r for one of r's users, if r is the binding's.
func (b *Binding) take(r *Conn) bool {
	if b.isPrivate() {
		if r.holder.Load() != b { // else the caller's own claim keeps r here
			return false
		}
	} else if !b.peek(r) {
		return false
	}
	_ = r.Lock(context.Background())
	if r.holder.Load() == b {
		return true
	}
	r.unlock() // it was dead, or the task has ended
	return false
}

// untake ends what take began.
func (b *Binding) untake(r *Conn) { b.release(r, !b.isPrivate()) }

// lockFor locks r for an operation of c. If c does not use r yet, w peeks until c uses it. again:
// r has left the binding.
func (b *Binding) lockFor(ctx context.Context, c *Checkout, w *Want, r *Conn) (again bool, _ error) {
	if w.peeks = r != c.conn; w.peeks && !b.peek(r) {
		w.peeks = false
		if tx := b.transactionOf(c.scope); tx != nil && tx.conn == r && b.refuses(c, w) == nil {
			return false, sql.ErrTxDone // the transaction of InTx has ended before its function
		}
		return true, nil
	}
	if err := r.Lock(ctx); err != nil {
		b.offer(r) // ctx may have ended when the lock was just given to this operation
		if w.peeks {
			w.peeks = false
			b.unpeek(r)
		}
		return false, err
	}
	w.has(r)
	return false, nil
}

// joined makes the checkout of w, which peeks, a user of r. others: how many other users r has.
func (b *Binding) joined(w *Want, r *Conn) (others int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others = r.use.users
	r.use.users++
	r.use.peeks--
	w.peeks = false
	return others
}

// users is the number of r's users.
func (b *Binding) users(r *Conn) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.use.users
}

// countOut ends the claim of one of r's users. The caller has r's lock, and another claim on r.
func (b *Binding) countOut(r *Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.use.users--
}

// standDown makes the caller, who is one of r's users and has r's lock, peek at r instead.
func (b *Binding) standDown(r *Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.use.users--
	r.use.peeks++
}

// leave ends a claim on r. The caller does not hold r's lock. claims is r.use.users or r.use.peeks. If
// it was the last claim, and nothing pins r, no work goes on on r, and r goes back to the pool.
func (b *Binding) leave(r *Conn, claims *int) {
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
// After the task has ended, only the task's end takes r out.
func (b *Binding) mayLeaveLocked(r *Conn) bool {
	if b.ended.Load() || r.use.users > 0 || r.use.peeks > 0 || r.use.pin != pinning.None {
		return false
	}
	b.takeOutLocked(r)
	return true
}

func (b *Binding) takeOutLocked(r *Conn) {
	r.holder.Store(nil)
	r.use.users, r.use.peeks = 0, 0
	if b.isPrivate() {
		return // of use, a private binding sets only one more field, raw, and no function of Raw runs now
	}
	r.use = use{}
	if b.main.Load() == r {
		b.main.Store(nil)
	}
	b.held.Add(-1)
}

// giveBack gives r, which was taken out of the binding, back to the pool.
func (b *Binding) giveBack(r *Conn) {
	b.restore(r)
	if b.task == nil {
		r.GiveBack(nil)
	} else {
		r.GiveBack(b.task)
	}
}

// restore ends what attach began, when r was taken out.
func (b *Binding) restore(r *Conn) {
	if b.shares {
		r.values = nil
	}
	r.Meter.End()
	r.Session.GiveBack()
}

// release ends an operation on r, under r's lock, and unlocks r. The caller has a claim on r, so
// that nobody else gives r back meanwhile. peeks: the claim is a peek, and release ends this peek.
// release stores why r is held. If nothing holds r, r goes back to the pool.
func (b *Binding) release(r *Conn, peeks bool) {
	if r.holder.Load() != b {
		r.unlock() // it was dead, or the task has ended
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
	if peeks && !out {
		r.use.peeks++ // until r is unlocked, so that the last user, who may leave now, does not give r back
	}
	b.mu.Unlock()
	if out {
		r.Unlock()
		b.giveBack(r)
		return
	}
	b.unlock(r)
	if peeks {
		b.unpeek(r)
	}
}

// endUse is release for one of r's users.
func (b *Binding) endUse(r *Conn) {
	if r.settled(b.main.Load() == r) {
		r.use.moves()
		b.unlock(r)
		return
	}
	b.release(r, false)
}

// judge says why r is held, after an operation in a task. dead: r is dead and leaves. Checkouts that
// use r get the error from their next operation. A dead session with open rows stays until the owner
// of the rows has found the error and closed the rows.
func (b *Binding) judge(r *Conn) (pin pinning.Pin, dead bool) {
	r.use.moves()
	pin = r.pin()
	if r.Unusable() && pin != pinning.Tx {
		b.loseState(r)
		pin = pinning.None
	}
	if !b.shares || !pin.KeepsTask() { // a binding that does not share behaves as without a task
		pin = pinning.None
	}
	pin = b.electMain(r, pin)
	r.Observe(pin.InTx())
	return pin, r.Unusable() && pin == pinning.None && !r.Begun() && r.Rows() == nil
}

// loseState raises the loss barrier if r was the main session, and had session state or a
// transaction begun by hand. For a transaction of BeginTx no barrier is needed here: the
// program has ended it.
func (b *Binding) loseState(r *Conn) {
	if b.main.Load() == r && (r.Stateful() || r.ByHand()) {
		b.raiseBarrier(r.LostState("a transaction begun by hand", r.use.since))
	}
}

// electMain makes r the main session if something pins r. If nothing pins r, r is not the main
// session any more. electMain returns what pins r as the main session.
func (b *Binding) electMain(r *Conn, why pinning.Pin) pinning.Pin {
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

// detach ends a checkout's use of its connection. It waits for nobody, unless rows are open.
func (b *Binding) detach(c *Checkout) {
	r, rows := c.letGo()
	if r == nil || rows != nil && b.detachRows(r, rows) {
		return
	}
	b.leave(r, &r.use.users)
}

// detachRows is detach for a checkout that has opened rows. It reports whether the detach
// is complete. Open rows go on using the connection in place of their checkout.
func (b *Binding) detachRows(r *Conn, rows *Rows) bool {
	if rows.Buffer() != nil || rows.closed {
		return rows.Detached()
	}
	if !b.take(r) {
		return rows.Detached()
	}
	defer b.untake(r)
	rows.Attach()
	if rows.Detached() || !rows.Live() {
		return rows.Detached()
	}
	rows.Keep()
	return true
}

// evict takes r from a task that has ended. It is called with r's lock, and unlocks. When
// it returns, nothing that the task has opened or changed on r is left.
func (b *Binding) evict(r *Conn) {
	since, cancelled := r.use.since, r.TxCancelled()
	open, panicked := r.Undo(b.task.EndedError())
	if open {
		b.engine.report.Rollbacks.Add(1)
		b.rolledBack.Store(true)
	}
	// database/sql would have rolled back a cancelled transaction a moment later.
	var use []any
	if open && !cancelled {
		use = r.LastUse(b.task.Name()) // not nil: it names the task at least
	}
	defer b.tellUndone(use, panicked, since)
	b.mu.Lock()
	b.takeOutLocked(r)
	b.mu.Unlock()
	b.restore(r)
	r.Unlock()
	r.GiveBackNow(b.task)
}

// tellUndone logs the transaction that a task has left open on a connection, and a panic of the driver.
// use says who had the transaction; nil: none was open. tellUndone is called after the connection has
// left, because the logger may need a connection.
func (b *Binding) tellUndone(use []any, panicked any, since time.Time) {
	if panicked != nil {
		b.engine.report.DriverPanicked("at the end of a task; the connection was closed", panicked, "task", b.task.Name())
	}
	if use != nil {
		b.engine.report.TaskEndedOpen(ago(since), use...)
	}
}

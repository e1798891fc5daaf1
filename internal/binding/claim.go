package binding

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file begins and ends lendings, and counts the claims on the seats of a task.

// attach lends r, which comes from the pool, to c, and locks the seat of the lending. text is the
// statement's, or nil. pins: the operation is known to hold r after its end.
func (b *Binding) attach(ctx context.Context, c *Checkout, r *connpool.Conn, text *string, pins bool) error {
	waited := r.Waited()
	if waited > 0 {
		b.engine.report.Waited(waited)
	}
	if b.engine.report.HearsAcquired() {
		// If the program's function ends the goroutine, the connection goes back.
		b.engine.report.Acquired(ctx, r.Waited(), WhoIs(c.label, b.task), r.Return)
	}
	s := c.freeSeat()
	s.prepare(b, c.values)
	r.LendTo(&s.self)
	r.Session.Lend(b.shares)
	r.Meter.Begin(c.label, text, waited, pins)
	if b.isPrivate() { // it has no end, and before conn says so nobody knows that s has r
		s.conn.Store(r)
	} else if !b.receive(s, r) {
		s.lock.Unlock()
		b.giveBack(r)
		return b.task.EndedError()
	}
	if taken := b.engine.OnTaken; taken != nil {
		taken()
	}
	c.hold(s)
	return nil
}

// expect counts a connection that is on its way to the binding. first: it has no other one.
func (b *Binding) expect() (first bool) { return b.held.Add(1) == 1 }

// lost ends what expect began: the connection does not come, or has gone.
func (b *Binding) lost() { b.held.Add(-1) }

// receive makes s, whose checkout is its first user, a seat of the task. It reports false if the task has
// ended: the task's end finds only seats that were received before.
func (b *Binding) receive(s *Seat, r *connpool.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Load() {
		return false
	}
	s.users, s.ops = 1, 0
	s.conn.Store(r)
	if b.seats == nil {
		b.seats = b.few[:0]
	}
	b.seats = append(b.seats, s)
	return true
}

// countIn counts an operation on s, if s is a seat of the task. So nobody gives its connection back until
// countOut, or release.
func (b *Binding) countIn(s *Seat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hasLocked(s) {
		return false
	}
	s.ops++
	return true
}

// hasLocked reports whether s has a connection of the task. Only the list says so: conn and binding cannot be
// read at once, and s may be used again for other tasks and for this one meanwhile.
func (b *Binding) hasLocked(s *Seat) bool { return slices.Contains(b.seats, s) }

// countOut ends what countIn began, for somebody who has not the lock.
func (b *Binding) countOut(s *Seat) {
	b.mu.Lock()
	s.ops--
	b.lookAgainLocked(s)
}

// tryHold counts an operation on s and locks s, if s is a seat of the task and nobody works on it.
// letGo or release ends that.
func (b *Binding) tryHold(s *Seat) bool {
	if !b.countIn(s) {
		return false
	}
	if s.lock.TryLock() {
		if s.conn.Load() != nil {
			return true
		}
		s.lock.Unlock()
	}
	b.countOut(s)
	return false
}

// letGo ends what tryHold began, where nothing was done with the session.
func (b *Binding) letGo(s *Seat) {
	b.unlock(s)
	b.countOut(s)
}

// isOnlyClaim reports whether one user has the only claim on s, which is locked, and nothing pins s beyond
// its checkout.
func (b *Binding) isOnlyClaim(s *Seat) bool {
	if b.isPrivate() {
		return !s.left.Load()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.users == 1 && s.ops == 0 && !s.pin.KeepsTask()
}

// users is how many use s.
func (b *Binding) users(s *Seat) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.users
}

// use makes the checkout of an operation that is counted a user of the seat. others: how many other
// users the seat has.
func (b *Binding) use(w *Want) (others int) {
	s := w.seat
	w.count(false)
	b.mu.Lock()
	defer b.mu.Unlock()
	others = s.users
	s.users++
	s.ops--
	return others
}

// claim makes a function of Raw one of the users of s.
func (b *Binding) claim(s *Seat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.users++
}

// standDown ends the claim of a checkout, which has the lock of s. In a task its operation is counted
// instead.
func (b *Binding) standDown(s *Seat) {
	if b.isPrivate() {
		s.Detached() // the operation has the lock, and gives the connection back
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.users--
	s.ops++
}

// leaveAfterPanic unlocks s, whose driver has panicked. ends: the claim of c ends, because database/sql does
// not give c back.
func leaveAfterPanic(c *Checkout, s *Seat, b *Binding, ends bool) {
	if ends {
		b.standDown(s)
		c.letGo()
	}
	if b.isPrivate() {
		s.unlockAlone()
		c.unbind()
		return
	}
	b.release(s, ends)
}

// leave ends the claim of one of the users of s, who has not the lock. It waits for nobody. It reports
// whether it has given the connection back.
func (b *Binding) leave(s *Seat) (gaveBack bool) {
	b.mu.Lock()
	s.users--
	return b.lookAgainLocked(s)
}

// lookAgain gives the connection of s back if there is no claim on it.
func (b *Binding) lookAgain(s *Seat) {
	b.mu.Lock()
	b.lookAgainLocked(s)
}

// lookAgainLocked is lookAgain with mu, which it unlocks. Whoever ends a claim and finds s locked may go:
// whoever has the lock looks again after its unlock.
func (b *Binding) lookAgainLocked(s *Seat) (gaveBack bool) {
	var r *connpool.Conn
	if gaveBack = b.mayLeaveLocked(s) && s.lock.TryLock(); gaveBack {
		r = s.conn.Load()
		b.takeOutLocked(s)
	}
	b.mu.Unlock()
	if gaveBack {
		s.lock.Unlock()
		b.giveBack(r)
	}
	return gaveBack
}

// mayLeaveLocked reports whether nobody has a claim on s, and nothing pins it. After the task has ended,
// only the task's end takes the connection.
func (b *Binding) mayLeaveLocked(s *Seat) bool {
	return b.hasLocked(s) && s.users <= 0 && s.ops == 0 && s.pin == pinning.None && !b.ended.Load()
}

// takeOutLocked ends the lending of s, which is locked.
func (b *Binding) takeOutLocked(s *Seat) {
	s.conn.Store(nil)
	s.forget()
	if i := slices.Index(b.seats, s); i >= 0 {
		b.seats = slices.Delete(b.seats, i, i+1)
	}
	if b.main.Load() == s {
		b.main.Store(nil)
	}
	b.lost()
}

// giveBack gives r, whose lending in a task is over, back to the pool.
func (b *Binding) giveBack(r *connpool.Conn) {
	endLending(r)
	r.GiveBack(b.task)
}

// detach ends a checkout's use of its seat. It waits for nobody, unless rows are open.
func (b *Binding) detach(c *Checkout) {
	mine := c.mine
	s, rows := c.letGo()
	switch {
	case s == nil || rows != nil && b.detachRows(s, rows):
	case b.isPrivate(): // a transaction that is still open knows the seat, so it is not used again
		s.leaveAlone()
	case b.leave(s) && s == mine && !s.known: // nobody else has a claim, or will come
		c.mine = s
	}
}

// detachRows is detach for a checkout that has opened rows. It reports whether the detach
// is complete. Open rows go on using the seat in place of their checkout.
func (b *Binding) detachRows(s *Seat, rows *Rows) bool {
	if rows.Rows.Buffer() != nil || rows.closed {
		return rows.Rows.Detached()
	}
	if s.hold() == nil {
		return rows.Rows.Detached()
	}
	defer b.endHold(s)
	rows.Rows.Attach()
	if rows.Rows.Detached() || !rows.Rows.Live() {
		return rows.Rows.Detached()
	}
	rows.Rows.Keep()
	return true
}

// endHold ends what a hold of somebody with a claim began.
func (b *Binding) endHold(s *Seat) {
	if b.isPrivate() {
		s.unlockAlone()
	} else {
		b.release(s, false)
	}
}

// release ends an operation on s, which is locked, and unlocks s. The caller has a claim on s; counted:
// the claim is an operation, and it ends. release stores why the session is held. If nothing holds it,
// the connection goes back.
func (b *Binding) release(s *Seat, counted bool) {
	r := s.conn.Load()
	if s.over && s.raw == nil {
		b.evict(s, r)
		return
	}
	pin, dead := pinning.None, false
	if s.raw == nil {
		pin, dead = b.judge(s, r)
	}
	b.mu.Lock()
	if counted {
		s.ops--
	}
	out := false
	if s.raw == nil {
		s.pin = pin
		if out = dead && !b.ended.Load() || b.mayLeaveLocked(s); out {
			b.takeOutLocked(s)
		}
	}
	b.mu.Unlock()
	if out {
		s.lock.Unlock()
		b.giveBack(r)
		return
	}
	b.unlock(s)
	b.lookAgain(s) // the last claim may have ended after our look, and the caller's before
}

// endUse is release for one of the users of s.
func (b *Binding) endUse(s *Seat) {
	if s.isSettled(s.conn.Load(), b.main.Load() == s) {
		s.moved()
		b.unlock(s)
		return
	}
	b.release(s, false)
}

// judge says why r is held, after an operation in a task. dead: r is dead and leaves. Checkouts that
// use it get the error from their next operation. A dead session with open rows stays until their
// owner has found the error and closed them.
func (b *Binding) judge(s *Seat, r *connpool.Conn) (pin pinning.Pin, dead bool) {
	s.moved()
	pin = s.checkPin(r)
	if r.Session.Unusable() && pin != pinning.Tx {
		b.loseState(s, r)
		pin = pinning.None
	}
	if !b.shares || !pin.KeepsTask() { // a binding that does not share is as without a task
		pin = pinning.None
	}
	pin = b.electMain(s, pin)
	r.Session.Observe(pin.InTx())
	return pin, r.Session.Unusable() && pin == pinning.None && !r.Session.Begun() && r.Session.Rows() == nil
}

// loseState raises the loss barrier if s was the main seat, and its session had state or a
// transaction begun by hand. For a transaction of BeginTx no barrier is needed here: the
// program has ended it.
func (b *Binding) loseState(s *Seat, r *connpool.Conn) {
	if b.main.Load() == s && (r.Session.Stateful() || r.Session.ByHand()) {
		b.raiseBarrier(r.Session.LostState("a transaction begun by hand", s.since))
	}
}

// electMain makes s the main seat if something pins it. If nothing pins it, s is not the main
// seat any more. electMain returns what pins s as the main seat.
func (b *Binding) electMain(s *Seat, why pinning.Pin) pinning.Pin {
	main := b.main.Load() == s
	switch {
	case why == pinning.None && main:
		b.main.Store(nil)
	case why != pinning.None && !main:
		// The statement's text did not show that it needs a session. If another seat is
		// the main one already, the state of s ends with the checkouts that use s.
		if !b.main.CompareAndSwap(nil, s) {
			return pinning.None
		}
		s.begin()
	}
	return why
}

// evict takes r from a task that has ended. It is called with the lock of s, and unlocks. When
// it returns, nothing that the task has opened or changed on r is left.
func (b *Binding) evict(s *Seat, r *connpool.Conn) {
	since, cause := s.since, r.Session.TxCause()
	open, panicked := r.Session.Undo(b.task.EndedError())
	if open {
		b.engine.report.Rollbacks.Add(1)
		b.rolledBack.Store(true)
	}
	// If another context has ended the transaction, database/sql was about to roll it back. If the end of
	// the task has, the program has left it open.
	var use []any
	if open && (cause == nil || errors.Is(cause, task.ErrEnded)) {
		use = r.LastUse(b.task.Name()) // it has the task at least
	}
	defer b.tellUndone(use, panicked, since)
	b.mu.Lock()
	b.takeOutLocked(s)
	b.mu.Unlock()
	s.lock.Unlock()
	endLending(r)
	r.GiveBackNow(b.task)
}

// tellUndone tells what a task has left open on a connection. use says who had a transaction
// there; nil: none was open. It is called after the connection
// has left, because the logger may need a connection.
func (b *Binding) tellUndone(use []any, panicked any, since time.Time) {
	if panicked != nil {
		b.engine.report.DriverPanicked("at the end of a task; the connection was closed", panicked, "task", b.task.Name())
	}
	if use != nil {
		b.engine.report.TaskEndedOpen(ago(since), use...)
	}
}

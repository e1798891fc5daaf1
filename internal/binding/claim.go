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

// This file begins and ends lendings, and counts the claims on seats.

// claim is a reason for which a seat keeps its connection.
type claim uint8

const (
	none claim = iota // no claim: the caller only looks, or keeps the claim that it has
	user              // the claim of a checkout, of rows whose checkout has ended, or of a function of Raw
	op                // in a task: the claim of an operation on a seat that is not its checkout's
)

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
	if b.isPrivate() { // a private binding does not end, and nobody can find r in s before conn is set
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

// expectConn counts a connection that is on its way to the binding. first: it has no other one.
func (b *Binding) expectConn() (first bool) { return b.held.Add(1) == 1 }

// unexpectConn ends what expectConn began: the connection does not come, or has gone.
func (b *Binding) unexpectConn() { b.held.Add(-1) }

// receive makes s a seat of the task. It reports false if the task has
// ended: the task's end finds only seats that were received before.
func (b *Binding) receive(s *Seat, r *connpool.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Load() {
		return false
	}
	s.ops.Store(0)
	s.conn.Store(r)
	if b.seats == nil {
		b.seats = b.few[:0]
	}
	b.seats = append(b.seats, s)
	return true
}

// has reports, under mu, whether s has a connection of the task. Only the list says so: conn and binding cannot be
// read at once, and s may be used again for other tasks and for this one meanwhile.
func (b *Binding) has(s *Seat) bool { return slices.Contains(b.seats, s) }

// countIn counts an operation on s, if s is a seat of the task. So nobody gives its connection back until
// that claim ends.
func (b *Binding) countIn(s *Seat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(s) {
		return false
	}
	s.ops.Add(1)
	return true
}

// tryHold counts an operation on s and locks s, if s is a seat of the task and nobody works on it.
func (b *Binding) tryHold(s *Seat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(s) || !s.lock.TryLock() {
		return false
	}
	s.ops.Add(1)
	return true
}

// isOnlyClaim reports whether one user has the only claim on s, which is locked, and nothing pins s beyond
// its checkout.
func (b *Binding) isOnlyClaim(s *Seat) bool {
	if b.isPrivate() {
		return s.users.Load() == 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.users.Load() == 1 && s.ops.Load() == 0 && !s.pin.KeepsTask()
}

// addUser makes the checkout of an operation that is counted a user of the seat. others: how many other
// users the seat has.
func (b *Binding) addUser(w *Want) (others int32) {
	s := w.seat
	w.claim = none
	b.mu.Lock()
	defer b.mu.Unlock()
	s.ops.Add(-1)
	return s.users.Add(1) - 1
}

// Three verbs end a claim. The caller of unlock has the lock of s, the caller of leave has not. The caller of recheck
// has no claim.

// unlock unlocks s, and ends a claim of its caller. If no claim is left, and nothing pins s, the connection goes
// back. If a statement of the task waits for a connection, and can share s, the statement gets s with the lock: if s
// were free in between, others could take it each time. After the unlock, unlock looks again: a claim may have ended
// meanwhile, or a statement may have joined the queue, and both have found s locked.
func (s *Seat) unlock(own claim) (gaveBack bool) {
	if b := s.binding.Load(); own == none && !s.dead && b.stays(s) {
		s.lock.Unlock()
		return !b.stays(s) && s.recheck()
	}
	return s.unlockSlow(own)
}

// unlockSlow is unlock where something may change.
func (s *Seat) unlockSlow(own claim) (gaveBack bool) {
	b, r := s.binding.Load(), s.conn.Load()
	var out, refused bool
	if b.isPrivate() {
		out = s.decideAlone(own)
	} else {
		var next *waiter
		if out, next, refused = b.decide(s, own); next != nil {
			next.cancel(errHandedOver)
			return false
		}
	}
	s.lock.Unlock()
	if out {
		b.giveBack(r)
		return true
	}
	return b.needs(s, !refused) && s.lock.TryLock() && s.unlockSlow(none)
}

// leave ends a claim of its caller, who has not the lock. It waits for nobody: whoever has the lock looks again after
// the unlock. It reports whether it has given the connection back.
func (s *Seat) leave(own claim) (gaveBack bool) {
	if s.lock.TryLock() {
		return s.unlockSlow(own)
	}
	s.countOut(own)
	return s.recheck()
}

// recheck does what unlock does, if that is needed and nobody has the lock.
func (s *Seat) recheck() (gaveBack bool) {
	return s.binding.Load().needs(s, true) && s.lock.TryLock() && s.unlockSlow(none)
}

// countOut ends a claim.
func (s *Seat) countOut(own claim) {
	switch own {
	case user:
		s.users.Add(-1)
	case op:
		s.ops.Add(-1)
	}
}

// decideAlone is decide without a task. The last user is not counted out: prepare would count it in again.
func (s *Seat) decideAlone(own claim) (out bool) {
	if own == user && s.users.Load() > 1 {
		s.users.Add(-1)
		return false
	}
	if out = (own == user || s.users.Load() <= 0) && s.conn.Load() != nil; out {
		s.conn.Store(nil)
	}
	return out
}

// decide ends a claim on s, which is locked, and decides what becomes of s. out: the lending is over. next: this
// statement of the task gets s with the lock. refused: a statement waits, and cannot share s.
func (b *Binding) decide(s *Seat, own claim) (out bool, next *waiter, refused bool) {
	s.countOut(own)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.isFree(s) || s.dead && b.has(s) && !b.ended.Load():
		b.takeOut(s)
		return true, nil, false
	case len(b.waiters) > 0 && b.has(s):
		next, refused = b.nextFor(s)
	}
	return false, next, refused
}

// needs reports whether somebody has to take the lock of s, and unlock it: nobody has a claim on it, or, with
// offers, a statement of the task waits for a connection.
func (b *Binding) needs(s *Seat, offers bool) bool {
	switch {
	case b.isPrivate():
		return s.users.Load() <= 0 && s.conn.Load() != nil
	case b.stays(s):
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isFree(s) || offers && len(b.waiters) > 0 && b.has(s)
}

// stays reports, without a lock, whether s has a user and no statement of the task waits for a connection.
func (b *Binding) stays(s *Seat) bool { return s.users.Load() > 0 && b.waiting.Load() == 0 }

// isFree reports, under mu, whether nobody has a claim on s, and nothing pins it. After the task has ended,
// only the task's end takes the connection.
func (b *Binding) isFree(s *Seat) bool {
	if !b.has(s) || b.ended.Load() { // first: s may be a seat of another binding by now, whose mu protects pin
		return false
	}
	return s.users.Load() <= 0 && s.ops.Load() == 0 && s.pin == pinning.None
}

// nextFor takes the statement that has waited for the longest time from the queue, under mu. It gets s, which is
// locked, and is counted there. refused: s cannot be shared.
func (b *Binding) nextFor(s *Seat) (next *waiter, refused bool) {
	if !b.mayShare(s) {
		return nil, true
	}
	// Those who wait for the lock itself have every second turn.
	if s.handed = !s.handed || !s.lock.Contended(); !s.handed {
		return nil, false
	}
	next, b.waiters = b.waiters[0], b.waiters[1:]
	b.waiting.Store(int32(len(b.waiters)))
	next.given = s
	s.ops.Add(1)
	return next, false
}

// takeOut ends the lending of s, which is locked, under mu.
func (b *Binding) takeOut(s *Seat) {
	s.conn.Store(nil)
	s.forget()
	if i := slices.Index(b.seats, s); i >= 0 {
		b.seats = slices.Delete(b.seats, i, i+1)
	}
	if b.main.Load() == s {
		b.main.Store(nil)
	}
	b.unexpectConn()
}

// giveBack gives back the connection of an attach, when no seat leads to r any more.
func (b *Binding) giveBack(r *connpool.Conn) {
	r.Meter.End()
	r.Session.GiveBack()
	if b.isPrivate() {
		r.GiveBack(nil) // an untyped nil: a nil *task.Task in the interface would not be nil
		return
	}
	r.GiveBack(b.task)
}

// release unlocks s after something was done with the session, and notes why the session is held.
func (s *Seat) release(own claim) {
	if b := s.binding.Load(); !b.isPrivate() && s.raw == nil {
		s.countOperation()
		if r := s.conn.Load(); !s.isSettled(r, b.main.Load() == s) {
			b.judge(s, r)
		}
	}
	s.unlock(own)
}

// judge notes why r is held, after an operation in a task. If r is dead, it leaves: checkouts that
// use it get the error from their next operation. A dead session with open rows stays until their
// owner has found the error and closed them.
func (b *Binding) judge(s *Seat, r *connpool.Conn) {
	pin := s.checkPin(r)
	if r.Session.Unusable() && pin != pinning.Tx {
		b.loseState(s, r)
		pin = pinning.None
	}
	if !b.shares || !pin.KeepsTask() { // a binding that does not share is as without a task
		pin = pinning.None
	}
	pin = b.electMain(s, pin)
	r.Session.Observe(pin.InTx())
	s.dead = r.Session.Unusable() && pin == pinning.None && !r.Session.Begun() && r.Session.Rows() == nil
	if s.pin != pin {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.pin = pin
	}
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

// evict takes the connection of s from a task that has ended. It is called with the lock of s, and unlocks. When
// it returns, nothing that the task has opened or changed on the connection is left.
func (b *Binding) evict(s *Seat) {
	r := s.conn.Load()
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
		use = r.LastUse(b.task.Name()) // it names the task, at least
	}
	defer b.tellUndone(use, panicked, since)
	b.mu.Lock()
	b.takeOut(s)
	b.mu.Unlock()
	s.lock.Unlock()
	r.Meter.End()
	r.Session.GiveBack()
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

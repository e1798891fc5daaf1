package binding

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/fairlock"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
)

// Seat is one lending of a real connection: to one checkout, or to the statements of a task. Its lock is
// held during every call of the driver. While the lending lasts, the seat is the only way to the
// connection. docs/adr/0031 argues the races.
//
// Who has a claim on a seat keeps the connection there. Users are checkouts, rows whose checkout has ended, and
// functions of Raw. In a task an operation on a seat that is not its checkout's counts itself where it finds the
// seat, and until it is over. Whoever ends the last claim, while nothing pins the seat, gives the
// connection back. If somebody else has the lock then, he does it.
//
// In three cases the connection leaves under the lock in spite of claims: it is dead, its task has
// ended, or others wait for it and its rows are in memory. Whoever gets the lock after that finds no
// connection. Such a seat is never used again.
type Seat struct {
	lock fairlock.Mutex
	self connpool.Owner // the seat, for its connection

	// conn is nil when the lending is over. It changes under lock, in a task under the binding's mu, too.
	conn atomic.Pointer[connpool.Conn]
	// binding is whose lending it is. It changes under lock, while conn is nil.
	binding atomic.Pointer[Binding]
	// The claims. A user becomes one from an operation, and an operation is counted in, under the mu of the task's binding:
	// so the decision that there is none, which is made with mu, is right. A claim may end at any time.
	users, ops atomic.Int32

	pin pinning.Pin // in a task: what pinned the seat after the last operation; the lock and the binding's mu protect it

	// The lock protects the rest.
	moves  uint64        // operations so far: shows whether the session makes progress
	since  time.Time     // when the session was pinned, or its transaction began
	opener turn          // the last checkout whose statement may have begun a transaction
	handed bool          // the lock was handed over when it was unlocked last
	warned bool          // the log knows that a statement has joined the transaction
	raw    chan struct{} // closed when Raw's function returns; nil: none runs
	over   bool          // the task has ended while raw was set: whoever ends the loan takes the connection back
	dead   bool          // the session is dead, and leaves in spite of claims
	// values is the context whose values the driver's ResetSession has got last, in an explicit
	// task.
	values context.Context
	// known: a transaction of a task may have begun on the seat. It knows the seat after its checkout's claim
	// has ended, as does the scope of its InTx. So the seat is not used again.
	known bool
}

var _ connpool.Owner = (*Seat)(nil)

// turn is one use of a Checkout, which database/sql uses again.
type turn struct {
	checkout *Checkout
	number   uint64
}

// seatOf is the seat of r, or r's last one; nil: r was never lent.
func seatOf(r *connpool.Conn) *Seat {
	s, _ := r.Owner().(*Seat)
	return s
}

// Has reports whether r is lent to s. It needs no lock.
func (s *Seat) Has(r *connpool.Conn) bool { return s.conn.Load() == r }

// CountedOnTx raises the loss barrier of the task.
func (s *Seat) CountedOnTx(loss *session.LostError) { s.binding.Load().raiseBarrier(loss) }

// Detached ends the claim of a checkout whose rows are in memory. The caller has the lock, and unlocks.
func (s *Seat) Detached() { s.users.Add(-1) }

// hold locks s for somebody who has a claim on it, and returns its connection. nil: the lending is over,
// and s is not locked.
func (s *Seat) hold() *connpool.Conn {
	_ = s.lock.Lock(context.Background())
	r := s.conn.Load()
	if r == nil {
		s.lock.Unlock()
	}
	return r
}

// tryLook locks s for a look at r, without a claim, if r is lent to s and nobody works on it. unlock or
// release ends that.
func (s *Seat) tryLook(r *connpool.Conn) bool {
	if s == nil || !s.Has(r) || !s.lock.TryLock() {
		return false
	}
	if s.Has(r) {
		return true
	}
	s.unlock(none) // s may be used again
	return false
}

// What is known of the session, under the lock.

// prepare makes s, which has no connection, a seat of b with one user. values is the context with which database/sql has
// begun the checkout.
func (s *Seat) prepare(b *Binding, values context.Context) {
	if s.users.Load() != 1 {
		s.users.Store(1)
	}
	if s.binding.Load() != b {
		s.binding.Store(b)
	}
	if b.shares {
		s.values = values
	}
}

// forget ends what a task has recorded of its lending.
func (s *Seat) forget() {
	s.pin, s.values, s.raw, s.opener = pinning.None, nil, nil, turn{}
	s.moves, s.handed, s.warned, s.over, s.dead, s.since = 0, false, false, false, false, time.Time{}
}

// setKnown records that a transaction of a task may begin on s.
func (s *Seat) setKnown() { s.known = true }

// countOperation counts an operation: the session makes progress.
func (s *Seat) countOperation() { s.moves++ }

// begin notes the time: from now on a transaction, or the state of the session, pins it.
func (s *Seat) begin() { s.since, s.warned = time.Now(), false }

// pinnedBy tells, between two operations, why r is held.
func (s *Seat) pinnedBy(r *connpool.Conn) pinning.Pin {
	if session.LeavesNothing(r.Session.Effect()) && !r.Session.Begun() && s.raw == nil { // most statements
		if r.Session.Rows() != nil {
			return pinning.Rows
		}
		return pinning.Conn
	}
	f := s.facts(r)
	if f.Effect&dialects.TxControl != 0 { // the driver is asked only if a text may have begun a transaction
		f.Status = r.Session.TxStatus()
	}
	return pinning.Of(f)
}

// facts are the facts of r without the status, which only the driver knows.
func (s *Seat) facts(r *connpool.Conn) pinning.Facts {
	return pinning.Facts{
		Begun: r.Session.Begun(), Status: dialects.TxNone, Effect: r.Session.Effect(), Hidden: r.Session.HiddenTx(),
		Rows: r.Session.Rows() != nil, Raw: s.raw != nil,
	}
}

// checkPin returns why r is held, and checks whether the connection is lost.
func (s *Seat) checkPin(r *connpool.Conn) pinning.Pin {
	f := s.facts(r)
	f.Status = r.Session.CheckLost()
	return pinning.Of(f)
}

// isSettled reports whether judge has nothing to decide: the last statement changed only
// data, and s is not the main seat or is still in the same transaction.
func (s *Seat) isSettled(r *connpool.Conn, main bool) bool {
	if !session.LeavesNothing(r.Session.Effect()) || !r.Session.Healthy() {
		return false
	}
	if main {
		return s.pin == pinning.Tx && r.Session.HasTx()
	}
	return s.pin == pinning.None && !r.Session.Begun()
}

// lossOf returns why a statement must not run on r. own is the statement's transaction,
// nil if it has none.
func lossOf(r *connpool.Conn, own *Tx) error {
	if r.Session.TxLost() {
		return r.Session.LostTx()
	}
	if own != nil {
		return own.Tx.Lost()
	}
	if in := r.Session.Innermost(); in != nil {
		return in.Lost()
	}
	return nil
}

// maySend reports whether any statement of the task may run on r.
func (s *Seat) maySend(r *connpool.Conn) bool { return !r.Session.Unusable() && s.raw == nil }

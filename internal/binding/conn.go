package binding

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
)

// Conn is one real connection, and who has it.
type Conn struct {
	// holder is the binding that has the connection, nil if none has it. It changes under the
	// session's lock.
	holder atomic.Pointer[Binding]
	use    use // the records of holder about the connection
	// values is the context whose values the driver's ResetSession has got last, in an explicit
	// task. The session's lock protects it.
	values context.Context
	// Told is the number, plus 1, of the last checkout for which the log has a leak warning.
	Told atomic.Uint64

	connpool.Conn
}

var _ connpool.Seat = (*Conn)(nil)

// use is what a binding records of one of its sessions. The binding's mu protects users, peeks
// and pin (which is set under the session's lock, too). The session's lock protects the rest.
type use struct {
	users  int           // checkouts that use the session, and open rows whose checkout has ended
	peeks  int           // claims for a moment: of a wait for the session's lock, of a reader for others
	ops    uint64        // operations so far: shows whether the session makes progress
	pin    pinning.Pin   // what pinned the session after the last operation; None: nothing keeps it at the task
	since  time.Time     // when the session was pinned, or its transaction began
	opener turn          // the last checkout whose statement may have begun a transaction
	handed bool          // its lock was handed over when it was unlocked last
	warned bool          // the log knows that a statement has joined the transaction
	raw    chan struct{} // closed when Raw's function returns; nil: none runs
	left   bool          // the task has ended while raw was set: whoever ends the loan takes the session back
}

// turn is one use of a Checkout, which database/sql uses again.
type turn struct {
	checkout *Checkout
	number   uint64
}

// moves counts an operation.
func (u *use) moves() { u.ops++ }

// begin is called when something begins that pins the session: a transaction, or its state.
func (u *use) begin() { u.since, u.warned = time.Now(), false }

func newConn() *connpool.Conn {
	r := &Conn{}
	r.Seat = r
	return &r.Conn
}

// ConnOf is the connection of c, which an Engine's pool has made.
func ConnOf(c *connpool.Conn) *Conn { return c.Seat.(*Conn) }

// Borrowed reports whether a binding has the connection.
func (r *Conn) Borrowed() bool { return r.holder.Load() != nil }

// unlock unlocks r for a caller that came too late: r has left the caller's binding. Another binding
// may have r, and statements that wait in that binding may have found r locked.
func (r *Conn) unlock() {
	r.Unlock()
	if b := r.holder.Load(); b != nil {
		b.offer(r)
	}
}

// CountedOnTx raises the loss barrier of the task.
func (r *Conn) CountedOnTx(loss *session.LostError) { r.holder.Load().raiseBarrier(loss) }

// Detached counts out a checkout whose rows are in memory.
func (r *Conn) Detached() { r.holder.Load().countOut(r) }

// pinnedBy tells, between two operations, why r is held.
func (r *Conn) pinnedBy() pinning.Pin {
	if session.LeavesNothing(r.Effect()) && !r.Begun() && r.use.raw == nil { // most statements
		if r.Rows() != nil {
			return pinning.Rows
		}
		return pinning.Conn
	}
	f := r.facts()
	if f.Effect&dialects.TxControl != 0 { // the driver is asked only if a text may have begun a transaction
		f.Status = r.TxStatus()
	}
	return pinning.Of(f)
}

// facts are the facts of r without the status, which only the driver knows.
func (r *Conn) facts() pinning.Facts {
	return pinning.Facts{
		Begun: r.Begun(), Status: dialects.TxNone, Effect: r.Effect(), Hidden: r.HiddenTx(),
		Rows: r.Rows() != nil, Raw: r.use.raw != nil,
	}
}

// pin returns why r is held, and checks whether the connection is lost.
func (r *Conn) pin() pinning.Pin {
	f := r.facts()
	f.Status = r.CheckLost()
	return pinning.Of(f)
}

// settled reports whether judge has nothing to decide: the last statement changed only
// data, and r is not the main session or is still in the same transaction.
func (r *Conn) settled(main bool) bool {
	if !session.LeavesNothing(r.Effect()) || !r.Healthy() {
		return false
	}
	if main {
		return r.use.pin == pinning.Tx && r.HasTx()
	}
	return r.use.pin == pinning.None && !r.Begun()
}

// lossOf returns why a statement must not run on r. own is the statement's transaction,
// nil if it has none.
func (r *Conn) lossOf(own *Tx) error {
	if r.TxLost() {
		return r.LostTx()
	}
	if own != nil {
		return own.Lost()
	}
	if in := r.Innermost(); in != nil {
		return in.Lost()
	}
	return nil
}

// maySend reports, under r's lock, whether any statement of the task that has r may run on it.
func (r *Conn) maySend() bool { return !r.Unusable() && r.use.raw == nil }

// CountAffected records, for the log of slow statements, how many rows a slow statement has affected.
func (r *Conn) CountAffected(result driver.Result, err error) {
	if err != nil || result == nil || !r.Meter.IsSlow() {
		return
	}
	if n, err := result.RowsAffected(); err == nil {
		r.Meter.Affected(n)
	}
}

// tryPeek is Binding.tryPeek for the binding that has r, and returns that binding. nil: no binding
// has r, or somebody works on r.
func (r *Conn) tryPeek() *Binding {
	if b := r.holder.Load(); b != nil && b.tryPeek(r) {
		return b
	}
	return nil
}

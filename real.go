package pooldriver

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
)

// realConn is one real connection, and who has it.
type realConn struct {
	// holder is the binding that has the connection, nil if none has. It changes under the
	// session's lock.
	holder atomic.Pointer[binding]
	use    use // what its holder keeps of it, under the lock
	// values are those that the driver's ResetSession has last had, in an explicit task. The
	// session's lock protects it.
	values   context.Context
	leakTold atomic.Uint64 // of which checkout the log was told

	connpool.Conn
}

var _ connpool.Seat = (*realConn)(nil)

func newRealConn() *connpool.Conn {
	r := &realConn{}
	r.Seat = r
	return &r.Conn
}

// realOf is the connection of c, which newRealConn has made.
func realOf(c *connpool.Conn) *realConn { return c.Seat.(*realConn) }

// connections are the real connections that are open, lent or idle.
func (c *core) connections() iter.Seq[*realConn] {
	return func(yield func(*realConn) bool) {
		for _, r := range c.pool.Conns() {
			if !yield(realOf(r)) {
				return
			}
		}
	}
}

// Borrowed reports whether a binding has the connection.
func (r *realConn) Borrowed() bool { return r.holder.Load() != nil }

// CountedOnTx raises the loss barrier of the task.
func (r *realConn) CountedOnTx(loss *session.LostError) { r.holder.Load().raiseBarrier(loss) }

// Detached counts a checkout out, whose rows are in memory.
func (r *realConn) Detached() {
	r.holder.Load().countOut(r)
}

// pinnedBy tells, between two operations, why r is held.
func (r *realConn) pinnedBy() pinning.Pin {
	if session.LeavesNothing(r.Effect()) && !r.Begun() && r.Rows() == nil && r.use.raw == nil {
		return pinning.Conn // most statements
	}
	f := r.facts()
	if f.Effect&dialects.TxControl != 0 { // the driver is asked only where a text may have begun one
		f.Status = r.TxStatus()
	}
	return pinning.Of(f)
}

// facts are those of r, but the status, which is the driver's to tell.
func (r *realConn) facts() pinning.Facts {
	return pinning.Facts{
		Begun: r.Begun(), Status: dialects.TxNone, Effect: r.Effect(), Hidden: r.HiddenTx(),
		Rows: r.Rows() != nil, Raw: r.use.raw != nil,
	}
}

// pin returns why r is held, and checks whether the connection is lost.
func (r *realConn) pin() pinning.Pin {
	f := r.facts()
	f.Status = r.CheckLost()
	return pinning.Of(f)
}

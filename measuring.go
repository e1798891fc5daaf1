package pooldriver

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
)

// How operations and checkouts are measured: internal/usage. Every call of a meter is made
// under the lock of its connection.

// pins reports whether an operation is known to hold its connection beyond itself.
func (op *operation) pins() bool {
	return op.kind == beginning || op.kind == lending || session.NeedsSession(op.Effect)
}

// measure begins the measuring of an attempt of op on a connection that was attached
// before. Its unlock ends it.
func (op *operation) measure() {
	r := op.real
	op.measured = true
	r.Meter.BeginOperation(op.text, op.kind == beginning || r.Begun(), op.counted == r)
	op.counted = r
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

package pooldriver

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/usage"
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
	r.meter.BeginOperation(op.text, op.kind == beginning || r.Begun(), op.counted == r)
	op.counted = r
}

// pinnedBy tells, between two operations, why r is held.
func (r *realConn) pinnedBy() usage.Pin {
	if r.Effect() == dialects.Clean && !r.Begun() && r.Rows() == nil && r.use.raw == nil {
		return usage.Conn // most statements
	}
	return r.strongestPin()
}

func (r *realConn) strongestPin() usage.Pin {
	effect := r.Effect()
	switch {
	case r.use.raw != nil:
		return usage.Raw
	case r.Begun():
		return usage.Transaction
	case effect&dialects.TxControl != 0 && (r.HiddenTx() || r.InTx()):
		return usage.RawTransaction
	case effect&session.ChangesSession != 0:
		return usage.State
	case r.Rows() != nil:
		return usage.Rows
	}
	return usage.Conn
}

// pinOfUsage is how the pins of package usage are called.
var pinOfUsage = [...]Pin{
	usage.Conn:           PinConn,
	usage.Rows:           PinRows,
	usage.State:          PinState,
	usage.RawTransaction: PinRawTransaction,
	usage.Transaction:    PinTransaction,
	usage.Raw:            PinRaw,
}

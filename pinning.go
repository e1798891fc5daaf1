package pooldriver

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// When a real connection may go back to the pool, and in what state. The
// decisions are pure functions of what is known; carrying them out is
// cleaning.go's.

// leftBehind is what is known of a real connection at the end of a checkout.
type leftBehind struct {
	status dialects.TxStatus // by the server, where it can be asked
	effect dialects.Effect   // of all statements since the last cleaning
	reset  ResetMode
	valid  bool // the driver's own opinion; true where it has none
	doubt  bool // what begins or ends a transaction failed
	whole  bool // the connection is its whole database
}

// nextStep is what a connection goes through before it is lent again.
type nextStep struct {
	discard  bool // close it; the rest does not matter
	rollback bool // end the transaction first
	clean    bool // then bring the session back to its state at connect
	panicked any  // what the driver did when it was asked
}

// settle decides. A transaction never outlives its checkout, in any mode. The
// server's word on it counts where there is one; where not, any statement that
// might have opened a transaction is followed by a rollback. Where a database would go
// with its connection, state that is not the program's data is the lesser evil.
func settle(l leftBehind) nextStep {
	if !l.valid || l.status == dialects.TxLost {
		return nextStep{discard: true}
	}
	if l.effect&dialects.Unresettable != 0 && l.reset != ResetOff && !l.whole {
		return nextStep{discard: true}
	}
	var s nextStep
	switch l.status {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		s.rollback = true
	case dialects.TxNone:
		s.rollback = l.doubt
	case dialects.TxUnknown:
		s.rollback = l.doubt || l.effect&dialects.TxControl != 0
	}
	if l.whole {
		return s
	}
	switch l.reset {
	case ResetAuto:
		s.clean = l.effect.Dirty()
	case ResetAlways:
		s.clean = true
	}
	return s
}

// outcome is how an operation on a real connection ended.
type outcome struct {
	badConn  bool // the driver returned driver.ErrBadConn
	claims   bool // the error says that nothing was sent
	lost     bool // the connection is closed
	executes bool // the operation may change data: an execution, not a prepare, begin or ping
	unsent   bool // nothing was handed to the network since the operation began: we counted
	trusted  bool // nobody counted, and the driver's ErrBadConn can be believed
	first    bool // nothing else has happened in this checkout
	retried  bool // this was the second try already
	expired  bool // the caller's context has ended
}

// verdict is what follows from an outcome that is an error.
type verdict struct {
	retry   bool // once more, on another real connection
	unclear bool // what says that nothing was sent must not be believed: database/sql would execute again
}

// judge decides whether an operation that failed is tried again. It is only if
// the server cannot have executed anything, and nothing but this operation
// holds the connection. Preparing, beginning and pinging leave nothing behind
// on a connection that is gone, whether they were sent or not. Where a driver's
// word is all there is, its ErrBadConn goes to database/sql, whose own retries
// are what the program would have had anyway. That an error calls itself safe to
// repeat nobody's word is taken for.
func judge(o outcome) verdict {
	safe := o.unsent || !o.executes
	doubtful := o.claims
	if o.badConn {
		doubtful = !o.trusted
	}
	return verdict{
		retry:   (o.badConn || o.lost) && safe && o.first && !o.retried && !o.expired,
		unclear: doubtful && !safe,
	}
}

// pin is what makes a connection its task's session.
type pin uint8

const (
	pinNone  pin = iota
	pinTx        // BeginTx
	pinRawTx     // the server says that a transaction is open
	pinState     // a statement has changed the session
)

var pinNames = [...]string{pinNone: "an open *sql.Conn, rows or a statement", pinTx: "a transaction", pinRawTx: "a transaction begun by hand", pinState: "session state"}

// pins is what keeps a connection at its task.
type pins struct {
	checkouts int // that use it: statements running, rows open, *sql.Conn, Raw
	pin       pin
}

func (p pins) pinned() bool { return p.checkouts > 0 || p.pin != pinNone }

// pinOf decides whether a connection is its task's session, and why. begun:
// BeginTx was called and its transaction not ended. A suspect statement does not
// pin: what it may have left is cleaned away before the next borrower comes.
// hidden: where nobody can be asked, a statement's text has said that it opens a
// transaction.
func pinOf(begun bool, status dialects.TxStatus, effect dialects.Effect, hidden bool) pin {
	switch {
	case begun:
		return pinTx
	case status == dialects.TxOpen, status == dialects.TxFailed, status == dialects.TxUnknown && hidden:
		return pinRawTx
	case status == dialects.TxImplicit, effect&session.ChangesSession != 0:
		return pinState
	}
	return pinNone
}

package pooldriver

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// This file decides when a real connection may go back to the pool, and in what state. Its
// functions are pure: they know only their arguments. cleaning.go does what they decide.

// leftBehind is what is known of a real connection at the end of a checkout.
type leftBehind struct {
	status dialects.TxStatus // what the server says, where it can be asked
	effect dialects.Effect   // of all statements since the last cleaning
	reset  ResetMode
	valid  bool // what the driver says (driver.Validator); true if it says nothing
	doubt  bool // a BEGIN, COMMIT or ROLLBACK has failed
	whole  bool // the database ends with the connection: SQLite in memory
}

// nextStep is what has to be done with a connection before it is lent again.
type nextStep struct {
	discard  bool // close it; the rest does not matter
	rollback bool // end the transaction first
	clean    bool // then bring the session back to its state at connect
	panicked any  // the driver's panic when it was asked whether the connection is valid
}

// settle decides what has to be done with a connection at the end of its checkout.
//
// No ResetMode lets a transaction outlive its checkout. The server says whether one is
// open. If the server cannot be asked, settle rolls back after every statement that may
// have begun one.
//
// If the database ends with the connection, settle keeps the connection and does not clean
// it: session state that is left is a smaller loss than the program's data.
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

// outcome describes an operation that has failed.
type outcome struct {
	badConn  bool // the driver returned driver.ErrBadConn
	claims   bool // the error says of itself that nothing was sent
	lost     bool // the connection is closed
	executes bool // the operation may change data: it is no prepare, begin or ping
	unsent   bool // by our own count, no byte was given to the network
	wasIdle  bool // the server says that it was waiting for a statement when it ended the connection
	trusted  bool // there is no count, and this driver returns ErrBadConn only if nothing was sent
	first    bool // nothing else has happened in this checkout
	retried  bool // this was the second try
	expired  bool // the caller's context has ended
}

// verdict is what follows from an outcome.
type verdict struct {
	retry   bool // try once more, on another real connection
	unclear bool // hide that the error says "nothing was sent": database/sql would execute again
}

// judge decides whether an operation that failed is tried again: only if the server cannot
// have executed it, and nothing else depends on the connection. A prepare, a begin or a
// ping is safe to repeat in any case: what it did has ended with its connection.
//
// If there is no count of bytes and the driver can be trusted, its ErrBadConn goes to
// database/sql, which tries again as it does without us. An error that only says of itself
// that it is safe to repeat is not believed.
func judge(o outcome) verdict {
	safe := o.unsent || o.wasIdle || !o.executes
	doubtful := o.claims
	if o.badConn {
		doubtful = !o.trusted
	}
	return verdict{
		retry:   (o.badConn || o.lost) && safe && o.first && !o.retried && !o.expired,
		unclear: doubtful && !safe,
	}
}

// pin says why a connection is its task's session.
type pin uint8

const (
	pinNone  pin = iota
	pinTx        // BeginTx
	pinRawTx     // the server says that a transaction is open
	pinState     // a statement has changed the session
)

var pinNames = [...]string{pinNone: "an open *sql.Conn, rows or a statement", pinTx: "a transaction", pinRawTx: "a transaction begun by hand", pinState: "session state"}

// pins says why a connection stays with its task.
type pins struct {
	checkouts int // so many use it: a running statement, open rows, a *sql.Conn, Raw
	pin       pin
}

func (p pins) pinned() bool { return p.checkouts > 0 || p.pin != pinNone }

// pinOf decides whether a connection is its task's session, and why. begun: a transaction
// of BeginTx is open. hidden: by its text, a statement has begun a transaction; this counts
// where the server cannot be asked. A statement that only may have changed the session does
// not pin: the session is cleaned before the next borrower gets it.
func pinOf(begun bool, status dialects.TxStatus, effect dialects.Effect, hidden bool) pin {
	switch {
	case begun:
		return pinTx
	case status == dialects.TxOpen, status == dialects.TxFailed, status == dialects.TxImplicit, status == dialects.TxUnknown && hidden:
		return pinRawTx
	case effect&session.ChangesSession != 0:
		return pinState
	}
	return pinNone
}

// Package pinning decides why a connection is held, and what must be done with it before it is lent
// again. Its functions are pure: they know only their arguments.
package pinning

import "github.com/pooldriver/pooldriver/dialects"

// Pin says why a connection is held. A stronger reason is greater. The package binding gathers the
// Facts (conn.go there), and skips Of where a statement cannot have left anything: Conn.pinnedBy and
// Conn.settled. The root's Pin has the same names.
type Pin uint8

// The reasons.
const (
	None      Pin = iota
	Statement     // a statement is running
	Conn          // a *sql.Conn, or a *sql.Tx whose begin was deferred
	Rows          // rows are open
	State         // a statement has changed the session
	RawTx         // the server says that a transaction is open, and BeginTx has not begun it
	Tx            // BeginTx
	Raw           // a function of Raw has the connection
)

var names = [...]string{
	None: "", Statement: "statement", Conn: "conn", Rows: "rows", State: "session state",
	RawTx: "transaction by hand", Tx: "transaction", Raw: "driver connection (Raw)",
}

// String is how holders, errors and metrics show p.
func (p Pin) String() string { return names[p] }

// KeepsTask reports whether the connection is its task's session: the task's further statements
// run on it, also when no checkout uses it.
func (p Pin) KeepsTask() bool { return p >= State }

// InTx reports whether a transaction is open.
func (p Pin) InTx() bool { return p == RawTx || p == Tx }

// ChangesSession are the effects that later statements of a session can see.
const ChangesSession = dialects.Stateful | dialects.Unresettable

// Facts is what is known of a connection between two operations.
type Facts struct {
	Begun  bool              // a transaction of BeginTx is open
	Status dialects.TxStatus // what the server says
	Effect dialects.Effect   // of all statements since the last cleaning
	// Hidden: by its text, a statement has begun a transaction. Hidden counts if the server cannot
	// be asked.
	Hidden bool
	Rows   bool // rows are open
	Raw    bool // a function of Raw has the driver's connection
}

// Of says why a connection that has a holder is held. A statement that only may have changed the
// session does not pin: the session is cleaned before the next borrower gets it.
func Of(f Facts) Pin {
	switch {
	case f.Raw:
		return Raw
	case f.Begun:
		return Tx
	case f.Status == dialects.TxOpen, f.Status == dialects.TxFailed, f.Status == dialects.TxImplicit, f.Status == dialects.TxUnknown && f.Hidden:
		return RawTx
	case f.Effect&ChangesSession != 0:
		return State
	case f.Rows:
		return Rows
	}
	return Conn
}

// Mode says when a connection is cleaned; see pooldriver.ResetMode, which has the same values.
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // when a statement has, or may have, changed the session
	Always             // after every checkout
	Off                // never
)

// Left is what is known of a connection at the end of its checkout.
type Left struct {
	Status dialects.TxStatus // what the server says, if it can be asked
	Effect dialects.Effect   // of all statements since the last cleaning
	Mode   Mode
	Valid  bool // what the driver says (driver.Validator); true if it says nothing
	Doubt  bool // a BEGIN, COMMIT or ROLLBACK has failed
	Whole  bool // the database ends with the connection: SQLite in memory
}

// Step is what must be done with a connection before it is lent again.
type Step struct {
	Discard  bool // close it; the rest does not matter
	Rollback bool // end the transaction first
	Clean    bool // then bring the session back to its state at connect
}

// Next decides what must be done with a connection at the end of its checkout.
//
// No Mode lets a transaction outlive its checkout. The server says whether a transaction is open.
// If the server cannot be asked, Next rolls back after every statement that may have begun a
// transaction.
//
// If the database ends with the connection, Next keeps the connection and does not clean it:
// session state that is left is a smaller loss than the program's data.
func Next(l Left) Step {
	if !l.Valid || l.Status == dialects.TxLost {
		return Step{Discard: true}
	}
	if l.Effect&dialects.Unresettable != 0 && l.Mode != Off && !l.Whole {
		return Step{Discard: true}
	}
	var s Step
	switch l.Status {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		s.Rollback = true
	case dialects.TxNone:
		s.Rollback = l.Doubt
	case dialects.TxUnknown:
		s.Rollback = l.Doubt || l.Effect&dialects.TxControl != 0
	}
	if l.Whole {
		return s
	}
	switch l.Mode {
	case Auto:
		s.Clean = l.Effect.Dirty()
	case Always:
		s.Clean = true
	}
	return s
}

package dialects

import (
	"context"
	"database/sql/driver"
	"regexp"
)

// A Sandboxer is a Session on which a test can run (package sandbox): in one transaction, which is
// rolled back at the end of the test. In it, savepoints stand for the transactions of the program.
type Sandboxer interface {
	Session

	// Sandbox says what is special about this database. The answer never changes.
	Sandbox() SandboxTraits

	// Interrupt asks the server to stop the statement that the session executes, while another
	// goroutine waits for that statement. It may be called several times for one statement, and
	// never after the statement has returned. When Interrupt returns, no later statement is hit by
	// the request, except that the next one may fail with the same error.
	Interrupt(ctx context.Context) error

	// CleanInTx is Clean while a transaction is open, which goes on. What the database cannot clean
	// in a transaction stays.
	CleanInTx(ctx context.Context, effect Effect) (kept bool, err error)
}

// SandboxTraits are what is special about a database for a sandbox.
type SandboxTraits struct {
	// Begin begins the transaction of the test.
	Begin string
	// ErrorFailsTx: a statement that fails takes the whole transaction with it (PostgreSQL). So each
	// statement outside of a transaction of the program stands in a savepoint.
	ErrorFailsTx bool
	// Uninterrupted: a statement cannot be stopped without the loss of the transaction (SQLite). The
	// caller waits until the statement is done.
	Uninterrupted bool
	// Lock is a query that keeps the sandboxes of other processes out: it waits for a short time, and
	// its only value is 1 if they are out. Unlock lets them in. Empty: none is needed.
	Lock, Unlock string
	// ReadOnly makes the transaction of a savepoint read only, and ends with the savepoint; empty:
	// there is no such statement, and ReadsOnly judges each text.
	ReadOnly string
	// FailedCommit is the error of the driver's Tx.Commit in a transaction that has failed.
	FailedCommit error
	// CommitOutside and RollbackOutside are the driver's errors of COMMIT and ROLLBACK outside of a
	// transaction; nil: they are no errors.
	CommitOutside, RollbackOutside error
	// Begins matches the texts that begin a transaction: in lower case, without comments, with one
	// space between words and before commas. A BEGIN of another form, and a BEGIN in a transaction,
	// go to the server: in the transaction of the test the server refuses them, or warns. nil: such
	// a BEGIN would commit, as a BEGIN in a transaction does (MySQL).
	Begins *regexp.Regexp
	// Scripts: the driver sends several statements, with semicolons between them, in one round trip.
	Scripts bool
}

// A SandboxCarrier is a Sandboxer that can send statements of the sandbox in front of a statement
// of the program, in its packet.
type SandboxCarrier interface {
	Sandboxer
	// CarryAhead makes the next statement that the driver sends, or prepares, carry texts, and then
	// settings as SettingsCarrier.CarrySettings does. false: it cannot be done now, and nothing has
	// changed.
	CarryAhead(texts []string, settings []ContextSetting) bool
	// DropAhead is called when the driver has returned: later statements carry nothing. sent reports
	// whether a statement has carried the texts.
	DropAhead() (sent bool)
}

// A SandboxKeeper is a Sandboxer of a database on which the end of a transaction undoes things that
// the release of a savepoint does not undo.
type SandboxKeeper interface {
	Sandboxer
	// LocalsOf returns what a text of the program does until the end of its transaction.
	LocalsOf(text string, args []driver.NamedValue) SandboxLocals
	// Undo returns statements, with semicolons between them, that undo l. Empty: nothing is to be
	// undone.
	Undo(l *SandboxLocals) string
	// Value returns the value that a setting has now.
	Value(ctx context.Context, name string) (value string, err error)
	// Deferred returns the constraints that are checked at the end of a transaction, as SET
	// CONSTRAINTS takes them.
	Deferred(ctx context.Context) ([]string, error)
	// Check returns statements that check now what is checked at the end of a transaction, and go
	// back to the constraints' defaults.
	Check(deferred []string) string
}

// A SandboxChecker is a Sandboxer of a database that checks some constraints at the end of a
// transaction, and has no statement that checks them before.
type SandboxChecker interface {
	Sandboxer
	// CheckDeferred returns the error that COMMIT would return now; nil: none.
	CheckDeferred(ctx context.Context) error
}

// SandboxLocals are what a transaction of the program has done until its end.
type SandboxLocals struct {
	Settings []string          // their names
	Before   map[string]string // their values before
	Drop     []string          // temporary tables that end with the transaction
	Empty    []string          // temporary tables whose rows end with the transaction
	Defers   bool              // constraints may wait for the end of the transaction
	Changes  bool              // tables or constraints may have changed
	// Notes are what cannot be undone in a sandbox, or never happens there, one sentence each.
	Notes []string
}

// A SandboxJudge is a Dialect that knows what sandboxes cannot do on its database.
type SandboxJudge interface {
	Dialect
	// SandboxesAlone reports whether two sandboxes at the same time get in each other's way.
	SandboxesAlone() bool
	// Refuses returns why a text cannot be executed in a sandbox; empty: it can be.
	Refuses(text string) string
	// Ignores reports whether a text sets an isolation level and nothing else. In a sandbox it has no
	// effect, because the transaction of the test has begun before.
	Ignores(text string) bool
	// ReadsOnly returns the error of the database for a text that writes in a transaction that is
	// read only; nil: the text writes nothing. It is asked where SandboxTraits.ReadOnly is empty.
	ReadsOnly(text string) error
	// LeavesNothing reports whether a text of one statement has changed nothing in its session if it
	// has failed with err. It is asked where CleanInTx cannot clean.
	LeavesNothing(err error) bool
}

// A LockExplainer is a LockFinder that knows the errors of sessions that have waited for locks.
type LockExplainer interface {
	LockFinder
	// LockLost returns whether err says that a session has waited in vain for a lock, and the
	// sessions that err itself names.
	LockLost(err error) (lost bool, blockers []uint64)
}

// Package dialects is what the pooling driver needs to know of a database:
// how to read its DSN, dial it, ask whether a transaction is open, clean a
// session, end it, and what its errors and statements mean.
//
// A program links a dialect by a blank import of its package, for instance
//
//	import _ "github.com/pooldriver/pooldriver/dialects/postgres"
//
// The package itself depends on the standard library alone.
package dialects

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
)

// A Dialect is what differs per database. Its methods are safe for concurrent
// use and do no I/O. A type that embeds generic.Dialect has cautious answers for any SQL.
type Dialect interface {
	// Name is a short lower-case word: "postgres", "mysql", "sqlite". A DSN of the form NAME:REST
	// belongs to this dialect for sure.
	Name() string

	// Claim says whether dsn looks like a DSN of this dialect.
	Claim(dsn string) Claim

	// Parse reads dsn. Errors repeat no part of dsn except the names of known
	// parameters: in a mistyped DSN the password may stand anywhere. Target shows
	// user, host and database. Parse therefore refuses a user or database with one of
	// : = & ; , in it, and a user with a slash: the rest may be a password. A database
	// that really has such a name cannot be used.
	Parse(dsn string) (Template, error)

	// Wrap makes a template of a connector that the program has made. It returns
	// ErrNotMine if the connector belongs to another driver. A connector that pools
	// is refused with another error: two pools fight over their connections.
	Wrap(c driver.Connector) (Template, error)

	// Effect says what a statement leaves behind. It is called before every
	// execution: no allocation, about a nanosecond per byte.
	Effect(query string) Effect

	// OnlyReads reports whether query is known to read and do nothing else. Such a query writes
	// nothing, locks no rows and takes no value of a sequence. Neither its rows nor later
	// questions to the session show which session has run the query. It is asked when connections are
	// scarce, not for every statement: then open rows of such a text are read into memory, and their
	// connection is lent to others.
	OnlyReads(query string) bool

	// AsksBack reports whether query asks the session for something that an earlier
	// statement has left there: LAST_INSERT_ID(), FOUND_ROWS(), SHOW WARNINGS, currval.
	AsksBack(query string) bool

	// TakesLocks reports whether query takes advisory locks (GET_LOCK, pg_advisory_lock). A replica would take
	// them, and keep nobody from anything.
	TakesLocks(query string) bool

	// Outline returns a text for people: without literals and comments, in one line, and cut after 200
	// bytes. If it is not sure what is a literal, it cuts the text earlier.
	Outline(query string) string

	// Diagnose says what an error of the driver means for the connection and
	// for the pool.
	Diagnose(err error) Diagnosis
}

// ErrNotMine is returned by Dialect.Wrap for a connector of another driver.
var ErrNotMine = errors.New("dialects: connector of another driver")

// ErrWrongRole is in the error of Template.Dial or RoleChecker.CheckRole if a server does not have,
// or no longer has, the role that the DSN asks for (target_session_attrs).
var ErrWrongRole = errors.New("dialects: the server has another role than the DSN asks for")

// ErrCannotClean is returned by Session.Clean if only a new connection gives a clean session.
var ErrCannotClean = errors.New("dialects: the session cannot be cleaned in place")

// A StateTeller is a Dialect whose driver's errors have no method SQLState. SQLState returns the SQLSTATE of an error, and
// nothing if the error has none.
type StateTeller interface {
	Dialect
	SQLState(err error) string
}

// A Template makes real connections. It is immutable and safe for concurrent
// use; Dial hands a new copy to the driver each time, because drivers rewrite what they are given.
type Template interface {
	// PoolParams are the parameters of the DSN whose names begin with
	// "pool_", in their order. They are not passed to the server.
	PoolParams() []Param

	// Target says where connections go, for errors and logs: dialect, user,
	// host, port and database; never a secret.
	Target() string

	// Driver is the real driver.
	Driver() driver.Driver

	// Traits are the driver's peculiarities.
	Traits() Traits

	// TakesCredential reports whether Dial can use a credential. The template of a
	// wrapped connector cannot.
	TakesCredential() bool

	// Dial opens one real connection. If cred is not nil, it takes the place of the DSN's user and
	// password. Errors hold no secret.
	Dial(ctx context.Context, cred *Credential) (Session, error)

	// Close frees what belongs to the template itself, such as the anchor of
	// a database in memory. No Dial is under way, and no Dial follows.
	Close() error
}

// OwnDialect is a Template with a dialect of its own: only a connection shows which database it
// leads to (ODBC), or only the driver is known (SQLite by Wrap). Dialect replaces the dialect that
// has parsed the DSN. It always returns the same dialect.
type OwnDialect interface {
	Template
	Dialect() Dialect
}

// A ParamLister is a Template that can show to people the parameters that its DSN has for the
// driver. DriverParams returns them in the DSN's order, without user, password, hosts, database and
// the pool's parameters. If a value may be a secret, a note stands in its place.
type ParamLister interface {
	Template
	DriverParams() []Param
}

// A HostLister is a Template that knows the servers of its DSN. Hosts returns them in the DSN's
// order, as Hosted names them, and without secrets.
type HostLister interface {
	Template
	Hosts() []string
}

// A Detecting dialect learns from its first connection which database it serves. Until
// Detected is true, Effect returns what the statement may do on any database. Such an
// answer must not be cached.
type Detecting interface {
	Dialect
	Detected() bool
}

// A CredentialAsker is a Template that needs credentials not only in Dial: it also ends,
// on the server, the statements that a closed session has left running. AskCredentials is
// called once, before the first Dial, if the program has a source of credentials. ask
// returns the current credential; refused is a credential that the server does not accept. ask may
// call the source, until the context of ask ends.
type CredentialAsker interface {
	Template
	AskCredentials(ask func(ctx context.Context, refused Credential) (Credential, error))
}

// DialFunc opens a network connection. It returns before its context ends, or soon after. It
// returns either a connection or an error.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A NetworkTemplate is a Template that opens network connections. DialNetworkBy is called
// once, before the first Dial, if a function of the program opens all these connections, also those
// that end a statement on the server. dial gets the network and the address as the DSN has them; no
// name is looked up before.
type NetworkTemplate interface {
	Template
	DialNetworkBy(dial DialFunc)
}

// Param is one parameter of a DSN.
type Param struct{ Name, Value string }

// Claim says whether a DSN belongs to a dialect.
type Claim uint8

const (
	// NotMine: the DSN belongs to another dialect, or to none.
	NotMine Claim = iota
	// Perhaps: the DSN has this dialect's form, but a DSN of another dialect may have that form
	// too.
	Perhaps
	// Surely: a scheme or prefix says so.
	Surely
)

// Traits are the peculiarities of a driver that the virtual connection must know.
type Traits struct {
	// TxKeepsContext: Commit and Rollback of a driver.Tx use the context of BeginTx, and kill the
	// connection if that context is cancelled.
	TxKeepsContext bool

	// TxDerivesContext: BeginTx may be a wrapper's, which may derive a context from its own that lasts as long as
	// the transaction.
	TxDerivesContext bool

	// BadConnUnsure: the driver may return driver.ErrBadConn although the server has
	// executed the statement. The statement is tried again only if Session.Sent shows
	// that nothing was sent.
	BadConnUnsure bool

	// PreparedAges: a prepared statement keeps the parameter types that its tables had
	// when it was prepared (PostgreSQL). A program that closes it and prepares it again
	// expects the present types.
	PreparedAges bool

	// PreparedKeepsTypes: a prepared statement keeps the types that its parameters and the
	// session's variables had at its first execution, and converts later values to these types
	// (MySQL 8.0.22, "PREPARE Statement").
	PreparedKeepsTypes bool

	// PreparingActs: some statements take effect when they are prepared (SQLite's
	// PRAGMA).
	PreparingActs bool

	// Reprepares: a statement with arguments that is executed without being
	// prepared is prepared and closed each time, by the driver or, after
	// driver.ErrSkip, by database/sql. A prepared statement that is kept gives
	// the same result, sooner.
	Reprepares bool

	// StatementsEndWithSession: closing the connection also closes its prepared
	// statements. Otherwise each one is closed first, as database/sql does: SQLite
	// keeps its file open for a statement.
	StatementsEndWithSession bool

	// StatusKnown: every answer of the server contains the state of the transaction, so
	// Session.TxStatus costs nothing. Otherwise TxStatus is called only when a
	// transaction may be open.
	StatusKnown bool

	// WritesAlone: a write fails while another connection of the same task has rows open (SQLite's
	// locks). COMMIT and BEGIN EXCLUSIVE may fail too. Statements that write have the effect
	// Writes.
	WritesAlone bool

	// RowsBlockWrites: a write waits, without a bound, while another connection has rows of the same
	// table open (SQLite's shared cache). Before a write, such rows of the whole pool are read into
	// memory where that is possible. Statements that write have the effect Writes.
	RowsBlockWrites bool

	// BytesKept: the byte slices of a row stay as they are when the next row
	// is read, the rows are closed or the connection is used again: the driver
	// does not reuse their memory, whatever the column's type.
	BytesKept bool

	// ArgsAsGiven: the driver's CheckNamedValue accepts every argument and changes none. So
	// CheckNamedValue is not called.
	ArgsAsGiven bool

	// ResetOnlyLooks: the driver's ResetSession does no more than Session.Peek. So ResetSession is
	// not called.
	ResetOnlyLooks bool

	// AnswersOverwrite: the session tells of the last statement, and of no earlier one: FOUND_ROWS(), SHOW WARNINGS. So nothing is
	// asked between two statements of a checkout.
	AnswersOverwrite bool

	// Savepoints are those of the database; the zero value: those of standard SQL.
	Savepoints Savepoints

	// StatementsOwned: the result of Prepare may be more than a text that can be executed again
	// (lib/pq's COPY). So the driver's statement belongs to one statement of the program: both are
	// closed together, and no other statement uses it.
	StatementsOwned bool

	// CloseWrites: the close of the last connection writes data to the database that others read
	// (SQLite's write-ahead log). Whoever closes the pool waits for this write, as with the bare
	// driver.
	CloseWrites bool

	// BatchesBypass: what goes ahead of a statement, in its packet, does not go ahead of a batch of package direct: the driver
	// writes that to the network itself.
	BatchesBypass bool

	// Pipelines: sessions may be Pipeliners.
	Pipelines bool

	// RoleMatters: the DSN asks for servers of a certain role, which a server
	// can lose while its connections live. Health checks ask RoleChecker.CheckRole.
	RoleMatters bool
}

// Diagnosis says what an error of the driver means. It is a set of bits.
type Diagnosis uint16

const (
	// AuthFailed: user or password were refused. A newer credential may be accepted.
	AuthFailed Diagnosis = 1 << iota
	// ServerLeaving: the server ends connections (shutdown, failover, an
	// administrator). The other connections of the pool are suspect.
	ServerLeaving
	// StaleStatement: the prepared statement no longer fits its tables or is gone. Nothing was
	// executed, and the statement works if it is prepared again. An error that may come from inside
	// a procedure or a function is not StaleStatement, because changes before the error may be
	// committed, unless every text that can run a procedure or a function is Suspect.
	StaleStatement
	// TxEnded: the server has rolled back the whole transaction in which the error happened, and
	// would run later statements outside of a transaction. Session.TxStatus does not show it. Under
	// Traits.WritesAlone this holds only for a statement whose Effect has Writes.
	TxEnded
	// TxDoubt: the server may have rolled back the whole transaction. After Session.Ping,
	// Session.TxStatus shows whether the server did.
	TxDoubt
	// TooManyPrepared: the server's limit of prepared statements is reached.
	TooManyPrepared
	// RoleDoubt: the server refused to write. Maybe it is no primary any more, or the program has
	// begun a read-only transaction. RoleChecker.CheckRole tells which is true.
	RoleDoubt
	// Conflict: another transaction interfered (a serialization failure, a deadlock, a database
	// that is busy). The same transaction may succeed if it is rolled back and run once more. A
	// COMMIT that fails with a Conflict has committed nothing.
	Conflict
	// WasIdle: the server has ended the connection because it was idle for too long. So the server
	// was waiting for a statement, and has executed nothing that was sent meanwhile.
	WasIdle
	// ServerFull: the server, or a bouncer before it, has no room for another connection of this
	// user. Open connections still work.
	ServerFull
	// UnknownName: a statement names a table or a database that the session does not know.
	UnknownName
	// Spent: the session answers, and should not be used again: it has run out of memory.
	Spent
	// SessionEnded: with this error the server ends the session, also where the driver does not
	// close its connection: a proxy such as MaxScale gives the error as the answer to a statement.
	// The effect of a prepare, a begin or a ping ends with the session.
	SessionEnded
	// PrimaryOnly: only a primary can execute the statement, although it does not write. If the server was none,
	// nothing was executed.
	PrimaryOnly
)

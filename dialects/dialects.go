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
// use and do no I/O.
type Dialect interface {
	// Name is a short lower-case word: "postgres", "mysql", "sqlite". A DSN
	// of the form NAME:REST is this dialect's beyond doubt.
	Name() string

	// Claim says whether dsn looks like one of this dialect's.
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

	// Diagnose says what an error of the driver means for the connection and
	// for the pool.
	Diagnose(err error) Diagnosis
}

// ErrNotMine is returned by Dialect.Wrap for a connector of another driver.
var ErrNotMine = errors.New("dialects: connector of another driver")

// ErrWrongRole is in the errors of Template.Dial and RoleChecker.CheckRole that say that
// a server is not, or no longer, what the DSN asks for (target_session_attrs).
var ErrWrongRole = errors.New("dialects: the server has another role than the DSN asks for")

// ErrCannotClean is returned by Session.Clean where the only way back to a
// clean session is a new connection.
var ErrCannotClean = errors.New("dialects: the session cannot be cleaned in place")

// A Template makes real connections. It is immutable and safe for concurrent
// use; what Dial hands to the driver is a copy of its own each time, because
// drivers rewrite what they are given.
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

	// Dial opens one real connection, with cred in place of the DSN's user
	// and password if it is not nil. Errors hold no secret.
	Dial(ctx context.Context, cred *Credential) (Session, error)

	// Close frees what belongs to the template itself, such as the anchor of
	// a database in memory. No Dial is under way or follows.
	Close() error
}

// OwnDialect is a Template with a dialect of its own: only its connections know which
// database they lead to (ODBC). Dialect replaces the dialect that has parsed the DSN. It
// always returns the same one.
type OwnDialect interface {
	Template
	Dialect() Dialect
}

// A ParamLister is a Template that knows what its DSN says to the driver, for people.
// DriverParams returns it without user, password, hosts, database and the pool's parameters,
// in the DSN's order. Where a value may be a secret, it says so in its place.
type ParamLister interface {
	Template
	DriverParams() []Param
}

// A HostLister is a Template that knows the servers of its DSN. Hosts returns them in the
// DSN's order, as Hosted names them; it holds no secret.
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
// returns the current credential; refused is one that the server does not accept. ask may
// call the source, as long as its context lasts.
type CredentialAsker interface {
	Template
	AskCredentials(ask func(ctx context.Context, refused Credential) (Credential, error))
}

// DialFunc opens a network connection. It returns before its context has ended, or soon
// after, and either a connection or an error.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A NetworkTemplate is a Template that opens network connections. DialNetworkBy is called
// once, before the first Dial, if a function of the program is to open them: all of them,
// also those that end a statement on the server. dial gets the network and the address as
// the DSN has them; no name is looked up before.
type NetworkTemplate interface {
	Template
	DialNetworkBy(dial DialFunc)
}

// Param is one parameter of a DSN.
type Param struct{ Name, Value string }

// Claim is a dialect's answer to whether a DSN is one of its own.
type Claim uint8

const (
	// NotMine: another dialect's, or nobody's.
	NotMine Claim = iota
	// Perhaps: it has this dialect's form, but so could another's.
	Perhaps
	// Surely: a scheme or prefix says so.
	Surely
)

// Traits are the peculiarities of a driver which the virtual connection has to
// know of.
type Traits struct {
	// TxKeepsContext: Commit and Rollback of a driver.Tx use the context
	// given to BeginTx, and kill the connection if that one is cancelled.
	TxKeepsContext bool

	// BadConnUnsure: the driver may return driver.ErrBadConn although the server has
	// executed the statement. The statement is tried again only if Session.Sent shows
	// that nothing was sent.
	BadConnUnsure bool

	// PreparedAges: a prepared statement keeps the parameter types that its tables had
	// when it was prepared (PostgreSQL). A program that closes it and prepares it again
	// expects the present types.
	PreparedAges bool

	// PreparedKeepsTypes: a prepared statement keeps the types that its parameters
	// had at its first execution, and those that the session's variables had, and
	// converts later values to them (MySQL 8.0.22, "PREPARE Statement").
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

	// WritesAlone: a write fails while another connection of the same task has
	// rows open (SQLite's locks), as may COMMIT and BEGIN EXCLUSIVE. Statements
	// that write have the effect Writes.
	WritesAlone bool

	// BytesKept: the byte slices of a row stay as they are when the next row
	// is read, the rows are closed or the connection is used again: the driver
	// does not reuse their memory, whatever the column's type.
	BytesKept bool

	// ArgsAsGiven: the driver's CheckNamedValue accepts every argument and leaves
	// it as it is. It is not called.
	ArgsAsGiven bool

	// ResetOnlyLooks: the driver's ResetSession does no more than Session.Peek. It is
	// not called.
	ResetOnlyLooks bool

	// Savepoints are the database's; the zero value stands for standard SQL's.
	Savepoints Savepoints

	// StatementsOwned: what Prepare returns may be more than a text that can be executed again
	// (lib/pq's COPY). So a prepared statement is the program's: it is closed with the
	// program's, and no other statement uses it.
	StatementsOwned bool

	// CloseWrites: the last connection that is closed writes to the database what others
	// read (SQLite's write-ahead log). Whoever closes the pool waits for that, as over the
	// bare driver.
	CloseWrites bool

	// RoleMatters: the DSN asks for servers of a certain role, which a server
	// can lose while its connections live. Health checks ask RoleChecker.CheckRole.
	RoleMatters bool
}

// TxStatus says whether a transaction is open on a session, by the last answer
// of the server.
type TxStatus uint8

const (
	// TxUnknown: the server does not tell, or the driver does not pass it on.
	TxUnknown TxStatus = iota
	// TxNone: no transaction, and none begins with the next statement, unless
	// the connection was that way from the first (MySQL, autocommit=0 in the
	// DSN).
	TxNone
	// TxOpen: a transaction is open, and somebody began it.
	TxOpen
	// TxImplicit: autocommit is off, so every statement belongs to a transaction. It
	// counts as open: it is rolled back before another borrower uses the session. A
	// transaction that was begun by BEGIN cannot always be distinguished from it.
	TxImplicit
	// TxFailed: a transaction is open and accepts only its end.
	TxFailed
	// TxLost: the connection is closed. The server rolls back what was open.
	TxLost
)

var txStatusNames = [...]string{"unknown", "none", "open", "implicit", "failed", "lost"}

func (s TxStatus) String() string {
	if int(s) < len(txStatusNames) {
		return txStatusNames[s]
	}
	return "invalid"
}

// Liveness is the answer of a look at a connection that costs no round trip.
type Liveness uint8

const (
	// Alive: the connection shows no sign of a problem.
	Alive Liveness = iota
	// Unsure: only a round trip can tell. Something waits to be read, for instance, and
	// is encrypted.
	Unsure
	// Dead: the server has closed the connection, or has announced it.
	Dead
)

// A Session is one real connection with what its dialect knows about it. Its
// methods are called by one goroutine at a time.
type Session interface {
	// Conn is the driver's connection, always the same.
	Conn() driver.Conn

	// TxStatus is the transaction's state by the server's last answer. It sends
	// nothing, except where no answer contains the state (ODBC, SQLite).
	TxStatus() TxStatus

	// Peek looks, without a round trip and without blocking, whether an idle
	// connection is still there.
	Peek() Liveness

	// Ping asks the server for a sign of life.
	Ping(ctx context.Context) error

	// Sent counts the bytes handed to the network so far, or anything else that grows
	// before the server can execute a statement. ok is false if nothing is counted.
	Sent() (n uint64, ok bool)

	// Rollback ends whatever transaction is open, by a statement, whether or
	// not the program holds a driver.Tx for it. With none open it does no harm.
	Rollback(ctx context.Context) error

	// Clean brings the session back to its state at connect. No transaction
	// is open. effect is what has run since the last cleaning. It returns
	// ErrCannotClean where only a new connection is clean. kept tells
	// whether statements prepared through the driver have survived.
	Clean(ctx context.Context, effect Effect) (kept bool, err error)

	// Close ends the session and returns when the server has let go of it
	// or ctx has ended, then with an error. A statement still running on the
	// server is stopped. Called once.
	Close(ctx context.Context) error
}

// ConnTraits is a Session that knows the traits of its connection better than its
// Template, which did not know the database or its version.
type ConnTraits interface {
	Session
	Traits() Traits
}

// An Unwrapper is a Session whose Conn wraps the driver's own connection. Unwrap is
// the driver's.
type Unwrapper interface {
	Session
	Unwrap() driver.Conn
}

// LastTxStatus is a Session that knows what the server said last of its transaction,
// although the connection has been closed since: TxStatus is TxLost then.
type LastTxStatus interface {
	Session
	LastTxStatus() TxStatus
}

// A RowDetacher is a Session whose driver's rows scan their columns themselves
// (driver.RowsColumnScanner, since Go 1.27), and which can do the same for rows that were
// read into memory. Without it such rows are scanned by database/sql's own conversion.
type RowDetacher interface {
	Session
	// DetachColumns is called for rows of this session that are open, once for each result
	// set. It returns nil for rows whose columns it cannot scan later.
	DetachColumns(rows driver.Rows) DetachedColumns
}

// DetachedColumns are the columns of one result set, whose driver's rows may be closed.
type DetachedColumns interface {
	// Raw returns a column of the present row as it came from the database; nil is NULL.
	// The caller copies it. It is called while the driver's rows are open and at a row.
	Raw(i int) []byte

	// Scan scans a copy of what Raw has returned into dest as the driver's ScanColumn would
	// have. If done is false, the driver converts its driver.Value with
	// database/sql.ConvertAssign, which is left to the caller. Scan uses nothing that the
	// session may use at the same time. One goroutine at a time calls it.
	Scan(i int, raw []byte, dest any) (done bool, err error)
}

// RoleChecker is a Session that can tell whether its server still has the role that the
// DSN asks for.
type RoleChecker interface {
	Session
	// CheckRole asks the server whether it is what the DSN asks for, whatever the
	// program has set in the session. It is called with no transaction open. The
	// error is an ErrWrongRole if it is not; any other says that nobody knows.
	// Where nothing was asked for and nothing is known it is nil.
	CheckRole(ctx context.Context) error
}

// Identified is a Session that knows how the server lists it: PostgreSQL's process id, MySQL's
// thread id. ProcessID needs no round trip, and may be called while the session is used.
// It is 0 where the number is not known. Behind a proxy that shares connections it is the
// proxy's.
type Identified interface {
	Session
	ProcessID() uint64
}

// An Outliner is a Dialect that can show a statement's text to people. Outline returns the
// text without literals and comments, in one line, and cut after 200 bytes. Where it is
// not sure what a literal is, it cuts the text earlier.
type Outliner interface {
	Dialect
	Outline(query string) string
}

// Hosted is a Session of a template with several servers. host is the server that it
// leads to, passed says which servers were tried before and why they were not used.
// Neither holds a secret. host is empty if there is one server only.
type Hosted interface {
	Session
	Host() (host, passed string)
}

// Irreplaceable is a Session whose database may end with it (SQLite in memory). If
// Irreplaceable returns true, the pool does not close a working session before the pool
// itself is closed, and does not clean it: transactions are rolled back and session state
// stays, as over the driver alone. It always returns the same.
type Irreplaceable interface {
	Session
	Irreplaceable() bool
}

// Severable is a Session whose network connection another goroutine can cut. A call of
// the driver that waits for the network then fails, and the connection cannot be used any
// more. It serves calls that take no context: driver.Tx.Rollback, driver.Rows.Close.
type Severable interface {
	Session
	Sever()
}

// A LazyBeginner is a Session that can begin a transaction without a round trip
// for it: BEGIN leaves with the first statement, before it.
//
// BeginWithNext is driver.ConnBeginTx's BeginTx and returns the driver's own transaction,
// but sends nothing. From then on the session reports TxOpen. What the driver sends next
// is executed in the transaction or not at all.
// Commit and Rollback of a transaction that nothing was sent in, and
// Session.Rollback, send nothing.
//
// If the server refuses to begin, its error is the first statement's, nothing
// was executed, and the session is as if that statement had failed in a
// transaction: it reports TxFailed and accepts only the transaction's end.
//
// The error is errors.ErrUnsupported, and nothing has changed, where this
// connection can only begin at once, or is not outside of a transaction. Every
// other error is BeginTx's.
type LazyBeginner interface {
	Session
	BeginWithNext(ctx context.Context, opts driver.TxOptions) (driver.Tx, error)
}

// Diagnosis says what an error of the driver means. It is a set of bits.
type Diagnosis uint16

const (
	// AuthFailed: user or password were refused. A newer credential may do.
	AuthFailed Diagnosis = 1 << iota
	// ServerLeaving: the server ends connections (shutdown, failover, an
	// administrator). The other connections of the pool are suspect.
	ServerLeaving
	// StaleStatement: the prepared statement no longer fits its tables or is
	// gone; nothing was executed, and preparing it again helps. It is not said of an
	// error that may come from inside a procedure or a function, whose changes before
	// the error may be committed, unless every text that can run one is Suspect.
	StaleStatement
	// TxEnded: the server has rolled back the whole transaction in which the error
	// happened, and would run later statements outside of one. Session.TxStatus does
	// not show it. Under Traits.WritesAlone this holds only for a statement whose
	// Effect has Writes.
	TxEnded
	// TxDoubt: the server may have rolled back the whole transaction. After
	// Session.Ping, Session.TxStatus shows whether it has.
	TxDoubt
	// TooManyPrepared: the server's limit of prepared statements is reached.
	TooManyPrepared
	// RoleDoubt: the server refused to write. It may not be a primary any more, or the
	// program has begun a read-only transaction. RoleChecker.CheckRole tells which.
	RoleDoubt
	// Conflict: another transaction was in the way (a serialization failure, a deadlock, a
	// database that is busy). The same transaction may succeed if it is rolled back and run
	// once more. A COMMIT that fails with it has committed nothing.
	Conflict
	// WasIdle: the server has ended the connection because it was idle for too long. So it
	// was waiting for a statement, and has executed none of what was sent meanwhile.
	WasIdle
	// ServerFull: the server, or a bouncer before it, has no room for another connection
	// of this user. Those that are open work.
	ServerFull
	// Spent: the session answers, and should not be used again: it has run out of memory.
	Spent
)

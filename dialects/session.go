package dialects

import (
	"context"
	"database/sql/driver"
)

// TxStatus says whether a transaction is open on a session, by the last answer
// of the server.
type TxStatus uint8

const (
	// TxUnknown: the server does not tell the status, or the driver does not pass it on.
	TxUnknown TxStatus = iota
	// TxNone: no transaction is open, and the next statement begins none, unless the connection
	// began that way (MySQL, autocommit=0 in the DSN).
	TxNone
	// TxOpen: a transaction is open, and somebody began it.
	TxOpen
	// TxImplicit: autocommit is off, so every statement belongs to a transaction. It
	// counts as open: it is rolled back before another borrower uses the session. A
	// transaction that was begun by BEGIN cannot always be distinguished from it.
	TxImplicit
	// TxFailed: a transaction is open and accepts only its end.
	TxFailed
	// TxLost: the connection is closed. The server rolls back an open transaction.
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
	// Unsure: only a round trip can tell. For instance, encrypted data waits to be read.
	Unsure
	// Dead: the server has closed the connection, or has announced that it will.
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

	// Rollback ends the open transaction, by a statement, whether or not the program holds a
	// driver.Tx for it. If no transaction is open, Rollback does no harm.
	Rollback(ctx context.Context) error

	// Clean brings the session back to its state at connect. No transaction is open. effect is the
	// effect of what has run since the last cleaning. Clean returns ErrCannotClean if only a new
	// connection is clean. kept reports whether statements that were prepared through the driver
	// have survived.
	Clean(ctx context.Context, effect Effect) (kept bool, err error)

	// Close ends the session. It returns when the server has released the session or, with an
	// error, when ctx has ended. A statement that still runs on the server is stopped. Close is
	// called once.
	Close(ctx context.Context) error
}

// ConnTraits is a Session that knows the traits of its connection better than its
// Template, which did not know the database or its version.
type ConnTraits interface {
	Session
	Traits() Traits
}

// An Unwrapper is a Session whose Conn wraps the driver's own connection. Unwrap returns the
// driver's connection.
type Unwrapper interface {
	Session
	Unwrap() driver.Conn
}

// LastTxStatus is a Session that still knows, after the connection was closed, what the server last
// said about the transaction. TxStatus is TxLost then.
type LastTxStatus interface {
	Session
	LastTxStatus() TxStatus
}

// A RowDetacher is a Session whose driver's rows scan their columns themselves
// (driver.RowsColumnScanner, since Go 1.27). It can do the same for rows that were read into
// memory. Without a RowDetacher database/sql's own conversion scans such rows.
type RowDetacher interface {
	Session
	// DetachColumns is called for rows of this session that are open, once for each result
	// set. It returns nil for rows whose columns it cannot scan later.
	DetachColumns(rows driver.Rows) DetachedColumns
}

// DetachedColumns are the columns of one result set, whose driver's rows may be closed.
type DetachedColumns interface {
	// Raw returns a column of the present row as it came from the database; nil is NULL. The caller
	// copies the bytes. Raw is called while the driver's rows are open and at a row.
	Raw(i int) []byte

	// Scan scans a copy of what Raw has returned into dest as the driver's ScanColumn would
	// have. If done is false, the driver would convert its driver.Value with
	// database/sql.ConvertAssign: the caller does so. Scan uses nothing that the session may use at
	// the same time. One goroutine at a time calls it.
	Scan(i int, raw []byte, dest any) (done bool, err error)
}

// RoleChecker is a Session that can tell whether its server still has the role that the
// DSN asks for.
type RoleChecker interface {
	Session
	// CheckRole asks the server whether it has the role that the DSN asks for, whatever the program
	// has set in the session. No transaction is open. The error is an ErrWrongRole if the server
	// has another role. Any other error says that the role is not known. If the DSN asks for no
	// role and none is known, the error is nil.
	CheckRole(ctx context.Context) error
}

// Identified is a Session that knows how the server lists it: PostgreSQL's process id, MySQL's
// thread id. ProcessID needs no round trip, and may be called while the session is used.
// It is 0 if the number is not known. Behind a proxy that shares connections, the number is the
// proxy's.
type Identified interface {
	Session
	ProcessID() uint64
}

// ProcessID is the number of a session if it is Identified, else 0.
func ProcessID(s Session) uint64 {
	if i, ok := s.(Identified); ok {
		return i.ProcessID()
	}
	return 0
}

// Hosted is a Session of a template with several servers. host is the server to which the session
// leads. passedOver says which servers were tried before and why they were not used. Neither holds a
// secret. host is empty if there is only one server.
type Hosted interface {
	Session
	Host() (host, passedOver string)
}

// Irreplaceable is a Session whose database may end with it (SQLite in memory). If
// Irreplaceable returns true, the pool does not close a working session before the pool itself is
// closed, and does not clean it: transactions are rolled back and session state stays, as over the
// driver alone. The answer never changes.
type Irreplaceable interface {
	Session
	Irreplaceable() bool
}

// TxAsker is a Session whose database may roll a transaction back by itself, after any error (SQLite).
// Later statements would run outside of the transaction. AskTx is called before each statement of a transaction,
// and says whether the transaction is still open.
type TxAsker interface {
	Session
	AskTx() TxStatus
}

// Severable is a Session whose network connection another goroutine can cut. A call of
// the driver that waits for the network then fails, and the connection cannot be used any
// more. This helps with calls that take no context: driver.Tx.Rollback, driver.Rows.Close.
type Severable interface {
	Session
	Sever()
}

// A TxRefuser is a Dialect that knows the driver's error for options that its BeginTx refuses on every
// server. A BeginTx that sends nothing returns it.
type TxRefuser interface {
	RefuseTx(opts driver.TxOptions) error
}

// A LazyBeginner is a Session that can begin a transaction without a round trip: BEGIN is sent in
// front of the first statement, together with it.
//
// BeginWithNext is driver.ConnBeginTx's BeginTx, but sends nothing. From then on the session reports
// TxOpen. What the driver sends next is executed in the transaction or not at all. If nothing was sent
// in the transaction, Commit, Rollback and Session.Rollback send nothing.
//
// If the server refuses to begin, the first statement gets the error, which names BEGIN, nothing was
// executed, and the session is as if that statement had failed in a transaction: it reports TxFailed
// and accepts only the transaction's end.
//
// BeginNow sends a BEGIN that still waits, and returns the server's error. The program is about to use
// the driver's connection, or to send what nothing can go ahead of. If the server has refused to begin
// before, the error is that of a failed transaction.
//
// If this connection can only begin at once, or is not outside of a transaction, the error is
// errors.ErrUnsupported, and nothing has changed. Every other error is an error of BeginTx.
type LazyBeginner interface {
	Session
	BeginWithNext(ctx context.Context, opts driver.TxOptions) (driver.Tx, error)
	BeginNow(ctx context.Context) error
}

// DeferredBegin is in front of the error of a BEGIN that came with a statement.
const DeferredBegin = "BEGIN, which was deferred to this statement: "

// A Recompiler is a Session whose statements are compiled in the program's process, with a copy of
// the schema that may be old (SQLite). Recompiles is called when query has failed. It reports
// whether query did not compile before and compiles now. Then no part of query was executed.
// complete applies the settings of the *sql.DB that the session lacks.
type Recompiler interface {
	Session
	Recompiles(ctx context.Context, query string, failed error, complete func()) bool
}

package pooldriver

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
)

// Label returns a context that gives a name to what is done with it: a job, a route, a
// feature. The name is shown wherever a user of a connection is shown: in Holders, Waiters,
// errors, logs, and to an Observer. The innermost name counts. It should be one of few,
// and hold no secret. The httptask middleware gives each request a label. Connections and
// tasks keep the label of the context that took or began them. name is cut after 100 bytes.
func Label(ctx context.Context, name string) context.Context { return task.Label(ctx, name) }

// Pin says why a connection is held.
type Pin string

// The reasons, from the weakest to the strongest.
const (
	PinNone           Pin = ""
	PinStatement      Pin = "statement"               // a statement is running
	PinRows           Pin = "rows"                    // rows are open
	PinConn           Pin = "conn"                    // a *sql.Conn, or a *sql.Tx whose begin was deferred
	PinState          Pin = "session state"           // a task has changed its session
	PinRawTransaction Pin = "transaction by hand"     // a statement such as BEGIN has begun it
	PinTransaction    Pin = "transaction"             // BeginTx
	PinRaw            Pin = "driver connection (Raw)" // a function of Raw has it
)

// Holder is who has one real connection at a moment.
type Holder struct {
	Conn      uint64 // number of the real connection in its Connector, from 1
	Host      string // the server, where the DSN names several; else empty
	ProcessID uint64 // the server's number of the session (PostgreSQL, MySQL, MariaDB); 0: not known

	Since time.Time // when the connection was taken; up to 10 ms early
	// Running: a statement is running. Then Idle is 0. Otherwise Idle is for how long
	// none has been running.
	Running bool
	Idle    time.Duration
	// IdlePinned is for how long, since Since, no statement was running.
	IdlePinned time.Duration
	Pin        Pin
	Statements uint64 // operations so far, including one that is running
	// Statement is the text of the last statement, without literals and comments, and cut
	// after 200 bytes.
	Statement string
	Label     string // see the function Label
	Task      string // the name of its task, as in errors; empty: none

	// TakenAt is the call stack that took the connection, StatementAt that of the last
	// statement in a transaction or another pin. They are empty where they were not
	// sampled: see Config.SampleStacks.
	TakenAt, StatementAt []Frame
}

// Frame is one call of a call stack. The innermost comes first, and calls of database/sql
// and of this package that stand before the program's are left out.
type Frame struct {
	Func string // with its package
	File string
	Line int
}

// Waiter is who waits for a connection at a moment.
type Waiter struct {
	Position int       // in the queue, from 1
	Since    time.Time // when the waiting began
	Deadline time.Time // when it ends without a connection; zero: never
	Label    string    // see the function Label
	Task     string    // the name of its task, as in errors; empty: none
	Holds    []uint64  // the connections that its task has already: see Holder.Conn
}

// CallSite is what one place of the program has done with connections, by the sampled
// checkouts: see Config.SampleStacks. Each counts for as many as it stands for, so the
// figures are estimates of all.
type CallSite struct {
	Stack      []Frame // that took the connections
	Count      uint64  // connections taken, those held now included
	Waited     time.Duration
	Held       time.Duration
	IdlePinned time.Duration // of Held: no statement was running
}

// TaskState is a task that holds a connection, or waits for one, at a moment.
type TaskState struct {
	Name     string    // as in errors
	Label    string    // see the function Label
	Implicit bool      // of WithTaskKey or httptask.Separate
	Since    time.Time // its first statement
	Holds    []uint64  // its connections: see Holder.Conn
	Waiting  int       // statements of it that wait
}

package pooldriver

import (
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// AcquireError is the error of a statement that got no connection. It says how long the statement
// has waited and what the pool looked like then. Its reason is one of the following five errors,
// or the error of the statement's context.
type AcquireError = pool.AcquireError

// ConnectError is the error of a connection that could not be made: where it should have led, and why there is none.
type ConnectError = dialects.ConnectError

// Why a statement got no connection. Test for them with errors.Is.
var (
	// ErrTimeout: Config.AcquireTimeout has passed. It is a context.DeadlineExceeded, too.
	ErrTimeout = pool.ErrTimeout
	// ErrTooManyWaiters: Config.MaxWaiters statements were waiting.
	ErrTooManyWaiters = pool.ErrTooManyWaiters
	// ErrOverloaded: Config.QueueTarget. The statement did not run. AcquireError.RetryAfter says when a new
	// try makes sense; httptask.Refused answers a request so.
	ErrOverloaded = pool.ErrOverloaded
	// ErrUnavailable: the circuit breaker is open (Config.BreakerFailures).
	ErrUnavailable = pool.ErrUnavailable
	// ErrClosed: the Connector is closed, or drains.
	ErrClosed = pool.ErrClosed
)

// ErrTaskEnded is the error of a call whose context carries a task that has ended, or whose handle
// was made in such a task. It is also the cause of a task's context (context.Cause), if the task's
// function or Config.TaskTimeout has ended the task. errors.Is finds the context's error, too.
//
// If the context itself is done, database/sql answers most calls before it calls us. Then the
// error is the bare error of the context, and only context.Cause tells that the task has ended:
// docs/tasks.md has a table. InTx and Do return both in any case.
var ErrTaskEnded = task.ErrEnded

// ErrTxLost is the error of the statements of a task whose open transaction or session state is
// lost. There are four reasons: the connection of an open transaction, or of the task's session
// state, was lost; the database has rolled a transaction back after an error; the context of a
// transaction's BeginTx ended after other statements had joined the transaction; the context of a
// savepoint ended after statements of a transaction around it had run in it. On SQLite, which rolls
// a transaction back when a write in it is cancelled, a transaction without a task gets the error, too. So no statement runs outside of the transaction or the state that the program
// counts on. The error of a lost transaction ends when the program has ended the transaction or,
// if the program did not end it, begins the next one. The error of lost state, or of a lost
// transaction begun by hand, ends with the task.
var ErrTxLost = session.ErrTxLost

// ErrNestedBuffer says that a statement could not run because rows of its task are open on the
// connection. The rows are larger than pool_nested_buffer or, together with other rows in memory,
// than pool_nested_buffer_total: the text says which. The program can still read the rows.
var ErrNestedBuffer = session.ErrNestedBuffer

// ErrDeadlock says that a statement got no connection because every connection is held by a task
// that waits for one more, and nothing has moved for Config.DeadlockAfter. The statement would
// have waited for ever, unless a holder was only busy elsewhere. The statement that came last
// gets the error, but never a statement of an implicit task. The error's text names the holders,
// and says what would have avoided the wait.
var ErrDeadlock = waitgraph.ErrDeadlock

// errWrapSelf is the answer to Wrap(New(…)).
var errWrapSelf = errors.New("pooldriver: Wrap was given a pooldriver Connector, which pools already; use it as it is")

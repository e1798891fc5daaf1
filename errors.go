package pooldriver

import (
	"errors"

	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// AcquireError is the error of a statement that got no connection. It says how long it has
// waited and what the pool looked like then. Its reason is one of the following four errors, or
// the error of the statement's context.
type AcquireError = pool.AcquireError

// Why a statement got no connection. Test for them with errors.Is.
var (
	// ErrTimeout: Config.AcquireTimeout has passed. It is a context.DeadlineExceeded, too.
	ErrTimeout = pool.ErrTimeout
	// ErrTooManyWaiters: Config.MaxWaiters statements were waiting.
	ErrTooManyWaiters = pool.ErrTooManyWaiters
	// ErrUnavailable: the circuit breaker is open (Config.BreakerFailures).
	ErrUnavailable = pool.ErrUnavailable
	// ErrClosed: the Connector is closed, or drains.
	ErrClosed = pool.ErrClosed
)

// ErrTaskEnded is what a statement gets whose context carries a task that has
// ended, and the cause of a task's context that was ended by its function. Where
// the task ended with a context, errors.Is finds that one's error, too.
var ErrTaskEnded = task.ErrEnded

// ErrTxLost is what the statements of a task get after it has lost its session
// without having ended it: the connection of an open transaction was lost, the
// context of its BeginTx ended while other statements had joined it, or that of a
// transaction begun inside it in which its own statements had run, or the
// connection was lost that had the task's session state. Nothing runs outside what
// the program counts on. A transaction's loss is over when the program has ended it
// or, where it was not the program that ended it, begins the next one; the loss of
// state, or of a transaction begun by hand, with the task.
var ErrTxLost = session.ErrTxLost

// ErrNestedBuffer says that a statement could not run because rows of its task
// are open on the connection, and are larger than pool_nested_buffer or, with what is in
// memory of other rows, than pool_nested_buffer_total: the text says which. The rows can
// be read on.
var ErrNestedBuffer = session.ErrNestedBuffer

// ErrDeadlock says that a statement got no connection because every one is held
// by a task that waits for one more, and nothing has moved for Config.DeadlockAfter:
// it would have waited for ever, unless a holder was only busy elsewhere. It goes to
// the one that came last, never to a statement of an implicit task. The error's text
// names the holders, and says what would have spared the wait.
var ErrDeadlock = waitgraph.ErrDeadlock

// errWrapSelf is the answer to Wrap(New(…)).
var errWrapSelf = errors.New("pooldriver: Wrap was given a pooldriver Connector, which pools already; use it as it is")

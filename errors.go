package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
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
var ErrTxLost = errors.New("pooldriver: the task has lost its session")

// ErrNestedBuffer says that a statement could not run because rows of its task
// are open on the connection, and are larger than pool_nested_buffer or, with what is in
// memory of other rows, than pool_nested_buffer_total: the text says which. The rows can
// be read on.
var ErrNestedBuffer = errors.New("pooldriver: rows that are open are larger than pool_nested_buffer")

// ErrDeadlock says that a statement got no connection because every one is held
// by a task that waits for one more, and nothing has moved for Config.DeadlockAfter:
// it would have waited for ever, unless a holder was only busy elsewhere. It goes to
// the one that came last, never to a statement of an implicit task. The error's text
// names the holders, and says what would have spared the wait.
var ErrDeadlock = errors.New("pooldriver: every connection is held by a task that waits for one more")

// lostError is an ErrTxLost with what was lost.
type lostError struct {
	what   string
	since  time.Time // when it began
	state  bool      // session state
	final  bool      // nothing brings it back, nor tells that the program knows
	cause  error     // what ended it, where that is known,
	inside bool      // or a savepoint in which its own statements ran
	undone bool      // the server has rolled it back after an error
}

const whatTx = "a transaction"

func (e *lostError) Error() string {
	if e.state {
		return fmt.Sprintf("%v: its connection was lost, and with it the session state that its statements have set; begin a new task (set %s ago)", ErrTxLost, time.Since(e.since).Round(time.Millisecond))
	}
	how := "its connection was lost"
	switch {
	case e.undone:
		how = "the server rolled it back after an error"
	case e.inside:
		how = "statements of its own ran in a transaction inside it, which was ended by its context (" + e.cause.Error() + ")"
	case e.cause != nil:
		how = "it was ended by its context (" + e.cause.Error() + ")"
	}
	do := "end it, and begin a new one"
	if e.final {
		do = "begin a new task"
	}
	return fmt.Sprintf("%v: %s is gone: %s; %s (begun %s ago)", ErrTxLost, e.what, how, do, time.Since(e.since).Round(time.Millisecond))
}

func (e *lostError) Is(target error) bool { return target == ErrTxLost }

func (e *lostError) Unwrap() error { return e.cause }

// errOpenInside is the answer to the commit of a transaction in which a
// savepoint is open. It was rolled back.
var errOpenInside = errors.New("pooldriver: commit out of order: a transaction that was begun inside this one is still open; this one was rolled back. Transactions of a task end in the reverse order of their beginning; a goroutine that wants one of its own uses NewTask")

// errTxOptions is the answer to a BeginTx inside a transaction with other
// options than that one has.
var errTxOptions = errors.New("pooldriver: a transaction inside another one of its task is a savepoint, and has to have the same isolation level and access mode or none; use NewTask for a transaction of its own")

// errUnclear takes the place of driver.ErrBadConn where the statement had been
// sent: database/sql executes a statement that failed with ErrBadConn again.
// It is an io.ErrUnexpectedEOF.
var errUnclear = fmt.Errorf("pooldriver: the connection was lost after the statement had been sent, so the server may or may not have executed it; look before you repeat it: %w", io.ErrUnexpectedEOF)

// errCommitUnclear takes the place of an error that says a COMMIT was not sent, where
// it was, or where nobody has counted. It is an io.ErrUnexpectedEOF.
var errCommitUnclear = fmt.Errorf("pooldriver: the connection was lost during COMMIT, so the transaction may or may not be committed; look before you repeat it: %w", io.ErrUnexpectedEOF)

// unclear is errUnclear or errCommitUnclear in the place of what the driver has said. Of
// that only the text remains within reach, and that a context has ended.
func unclear(what, said error) error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(said, ended) {
			return fmt.Errorf("%w (%w; the driver says: %s)", what, ended, said.Error())
		}
	}
	return fmt.Errorf("%w (the driver says: %s)", what, said.Error())
}

// errWrapSelf is the answer to Wrap(New(…)).
var errWrapSelf = errors.New("pooldriver: Wrap was given a pooldriver Connector, which pools already; use it as it is")

// errFoundDead is why the pool destroys a connection that died while idle.
var errFoundDead = errors.New("pooldriver: the server has closed the connection")

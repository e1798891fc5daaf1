package session

import (
	"errors"
	"fmt"
	"time"
)

// ErrTxLost is pooldriver.ErrTxLost.
var ErrTxLost = errors.New("pooldriver: the task has lost its session")

// LostError is an ErrTxLost that says what was lost.
type LostError struct {
	what   string
	since  time.Time // when it began; zero: nobody knows
	state  bool      // session state was lost
	final  bool      // the task gets the error until it ends
	cause  error     // the end of the context that has ended it; nil if none has
	inside bool      // cause has ended a savepoint in which statements of its own ran
	undone bool      // the server has rolled it back after an error
	alone  bool      // no task has had it
}

const whatTx = "a transaction"

// LostTx is the error of each statement in a transaction that is gone.
func (s *Session) LostTx() error {
	return &LostError{what: whatTx, since: s.Since(), undone: s.health != unusable, alone: !s.inTask}
}

// LostState is the error of each further statement of a task whose session is gone with its
// session state, or with a transaction begun by hand.
func (s *Session) LostState(what string, since time.Time) *LostError {
	return &LostError{what: what, since: since, state: s.stateful, final: true}
}

// Final reports whether the task gets the error until it ends. Otherwise the task gets it
// until another transaction begins.
func (e *LostError) Final() bool { return e.final }

func (e *LostError) Error() string {
	ago := time.Since(e.since).Round(time.Millisecond)
	if e.state {
		return fmt.Sprintf("%v: its connection was lost, and with it the session state that its statements have set; begin a new task (set %s ago)", ErrTxLost, ago)
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
	what := ErrTxLost.Error() + ": " + e.what
	if e.alone { // nobody has asked the time when it began
		return fmt.Sprintf("pooldriver: %s is gone: %s; %s", e.what, how, do)
	}
	return fmt.Sprintf("%s is gone: %s; %s (begun %s ago)", what, how, do, ago)
}

// Is makes the error an ErrTxLost.
func (e *LostError) Is(target error) bool { return target == ErrTxLost }

func (e *LostError) Unwrap() error { return e.cause }

// ErrOpenInside is the error of Commit if a savepoint inside the transaction is open. The
// transaction was rolled back.
var ErrOpenInside = errors.New("pooldriver: commit out of order: a transaction inside this transaction is still open, so this transaction was rolled back; end the inner transaction first, or use NewTask for a separate transaction")

package session

import (
	"errors"
	"fmt"
	"time"
)

// ErrTxLost is pooldriver.ErrTxLost.
var ErrTxLost = errors.New("pooldriver: the task has lost its session")

// LostError is an ErrTxLost with what was lost.
type LostError struct {
	what   string
	since  time.Time // when it began
	state  bool      // session state
	final  bool      // nothing brings it back, nor tells that the program knows
	cause  error     // what ended it, where that is known,
	inside bool      // or a savepoint in which its own statements ran
	undone bool      // the server has rolled it back after an error
}

const whatTx = "a transaction"

// LostTx is what the statements of a transaction get that is gone.
func (s *Session) LostTx() error {
	return &LostError{what: whatTx, since: s.Since(), undone: s.health != unusable}
}

// LostState is what a task gets from now on whose session is gone with what its
// statements have set, or with a transaction begun by hand.
func (s *Session) LostState(what string, since time.Time) *LostError {
	return &LostError{what: what, since: since, state: s.stateful, final: true}
}

// Final reports whether nothing brings back what was lost.
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
	return fmt.Sprintf("%v: %s is gone: %s; %s (begun %s ago)", ErrTxLost, e.what, how, do, ago)
}

// Is makes the error an ErrTxLost.
func (e *LostError) Is(target error) bool { return target == ErrTxLost }

func (e *LostError) Unwrap() error { return e.cause }

// ErrOpenInside is the answer to the commit of a transaction in which a savepoint is open.
// It was rolled back.
var ErrOpenInside = errors.New("pooldriver: commit out of order: a transaction that was begun inside this one is still open; this one was rolled back. Transactions of a task end in the reverse order of their beginning; a goroutine that wants one of its own uses NewTask")

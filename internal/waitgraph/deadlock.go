package waitgraph

import (
	"errors"
	"fmt"
)

// ErrDeadlock is what errors.Is finds in an Error.
var ErrDeadlock = errors.New("pooldriver: every connection is held by a task that waits for one more")

// InCycle says in an error's text that there is a closed wait cycle.
const InCycle = "every connection is held by a task that waits for one more"

// Error ends the wait of the cycle's victim.
type Error struct {
	Cycle    *Cycle
	Target   string // to which the connections lead
	Advice   string // see Situation.Advice
	TooLarge error  // why rows of the victim's task could not be read into memory; nil: no such rows
}

func (e *Error) Error() string {
	text := fmt.Sprintf("pooldriver: no connection to %s: %s, and none of these tasks has gone on for pool_deadlock_after; %s (held by %s)", e.Target, InCycle, e.Advice, e.Cycle.Names())
	if e.TooLarge != nil {
		text += "; " + e.TooLarge.Error()
	}
	return text
}

// Is reports whether target is ErrDeadlock.
func (e *Error) Is(target error) bool { return target == ErrDeadlock }

func (e *Error) Unwrap() error { return e.TooLarge }

// Situation says why a statement waits for a connection of its own. The zero value is right for a
// statement without a task.
type Situation struct {
	RowsTooLarge bool // rows that its task has open could not be read into memory
	InTask       bool // a task around it holds a connection
}

// Advice says how to avoid the wait.
func (s Situation) Advice() string {
	advice := "close rows, transactions and *sql.Conns before another connection is needed"
	switch {
	case s.RowsTooLarge:
		advice = "close the rows that the task has open before its next statement, raise pool_nested_buffer"
	case s.InTask:
		advice = "run the statement in the task around it"
	}
	return advice + ", or raise pool_max_conns"
}

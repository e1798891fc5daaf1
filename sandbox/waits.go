package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/task"
)

// A test has one session. Operations that need it wait for each other here, and get an error where the wait
// would have no end.

// Waits lets an operation wait for the session as long as somebody else makes progress.
func (c *checkout) Waits(ctx context.Context, err error) error {
	waited, waits := errors.AsType[*pooldriver.AcquireError](err)
	switch {
	case errors.Is(err, pooldriver.ErrDeadlock) && !errors.Is(err, pooldriver.ErrNestedBuffer):
	case !waits || waited.Waited == 0:
		return err
	case ctx.Err() != nil:
		return c.waited(fmt.Sprintf("until its context ended (%v)", ctx.Err()), err)
	case !errors.Is(err, pooldriver.ErrTimeout):
		return err
	}
	before := c.moves
	c.moves = c.s.stage.moves.Load()
	if before == c.moves && !c.s.stage.running() {
		return c.waited(fmt.Sprintf("for %v, and nothing has moved: perhaps they wait for each other", c.s.patience), err)
	}
	return nil
}

// circleLocked returns an error for an operation that would wait for its own goroutine: the test
// has one session, and another connection of the goroutine has it.
func (s *sandbox) circleLocked(c *checkout, in *task.Task, use beneath.Use, text string, at place) error {
	for other := range s.checkouts {
		if other == c {
			continue
		}
		holds, since := other.holds(at.goroutine)
		if holds == "" {
			continue
		}
		if in != nil && (in == other.tasks || in == other.inTx) {
			continue // they share the session
		}
		return &waitError{text: fmt.Sprintf("sandbox: %s would wait for ever: its goroutine has %s already, and a test has one session\n\tthis one:\n%s\n\t%s:\n%s\n\t%s",
			s.what(use, text), holds, at.trace(), holds, since.trace(), other.advice(in))}
	}
	return nil
}

// advice says how an operation avoids the wait for the checkout. in is the operation's task; nil: none.
func (c *checkout) advice(in *task.Task) string {
	const apart = "where they have to be apart, as in production, the test needs sandbox.Database"
	switch {
	case in != nil && (c.tasks != nil || c.inTx != nil):
		return "their tasks share nothing: use the context of the first one for both, or end the first one before; " + apart
	case c.txs > 0:
		return "use the *sql.Tx for both, end it before, or use one task for both (pooldriver.WithTask), in which a second transaction is a savepoint; " + apart
	case c.busy:
		return "ask the database before the statement begins, or use one task for both (pooldriver.WithTask)"
	}
	return "use the first *sql.Conn for both, close it before, or use one task for both (pooldriver.WithTask), in which they share the session; " + apart
}

// waitError is the error of an operation that does not get the session.
type waitError struct {
	text string
	err  error // nil: it has not waited
}

func (e *waitError) Error() string { return e.text }
func (e *waitError) Unwrap() error { return e.err }

// holds returns what keeps the session from the other statements of a goroutine, and the place where it
// began. Only a checkout that the goroutine has used last counts: another goroutine may end its transaction
// while this one waits. Open rows keep nobody waiting: they are read into memory.
func (c *checkout) holds(goroutine uint64) (what string, since place) {
	switch {
	case c.at.goroutine != goroutine, c.isOver(), c.txs > 0 && c.txCtx.Err() != nil: // in the last case it is being rolled back
		return "", place{}
	case c.txs > 0:
		return "a transaction", c.txAt
	case c.busy:
		return "a statement that calls the program back", c.at
	case c.used && c.ofConn():
		return "a *sql.Conn", c.taken
	}
	return "", place{}
}

// waited is the error of an operation that has waited for the session and got none. err is the inner
// Connector's, whose text speaks of a pool of one connection.
func (c *checkout) waited(how string, err error) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var holders strings.Builder
	for other := range s.checkouts {
		if other != c && (other.used || other.busy) && !other.isOver() {
			fmt.Fprintf(&holders, "\n\t%s:\n%s", other.describe(s), other.since().trace())
		}
	}
	return &waitError{fmt.Sprintf("sandbox: %s has waited for the one session of the test %s\n\tthis one:\n%s%s\n\t%s",
		s.what(c.use, c.text), how, c.at.trace(), holders.String(),
		"end the transaction, close the *sql.Conn or let the statement return before its goroutine waits for this one, or use one task for both (pooldriver.WithTask); "+
			"where goroutines need transactions at the same time, the test needs sandbox.Database"), err}
}

// running reports whether the driver is at work: whoever waits for it waits for a server.
func (st *stage) running() bool {
	if st.mu.TryLock() {
		st.mu.Unlock()
		return false
	}
	return true
}

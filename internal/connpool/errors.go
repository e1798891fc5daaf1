package connpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/pool"
)

// refusesUs reports whether the server has refused a login.
func (p *Pool) refusesUs(err error) bool {
	return p.config.Dialect.Diagnose(err)&dialects.AuthFailed != 0
}

// serverFull reports whether the server has refused a connection because it has no room.
func (p *Pool) serverFull(err error) bool {
	return p.config.Dialect.Diagnose(err)&dialects.ServerFull != 0
}

// stateOf is the SQLSTATE of a driver's error, or report.Ended; empty: it has none.
func stateOf(d dialects.Dialect, err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return report.Ended
	}
	if teller, ok := d.(dialects.StateTeller); ok {
		return teller.SQLState(err)
	}
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// Explain turns an error of Acquire into an error for the program. The error of a failed dial
// stays as it is. The pool's other errors get the target's name and a reason. errors.Is and
// errors.As find the error below.
func (p *Pool) Explain(err error) error {
	p.report.AcquireFailed(failureOf(err))
	if create, ok := errors.AsType[*pool.CreateError](err); ok {
		return p.createError(create)
	}
	if errors.Is(err, pool.ErrClosed) && p.draining.Load() {
		return p.DrainingError() // it came when the last connection had just come back
	}
	why, by := "", ""
	a, ok := errors.AsType[*pool.AcquireError](err)
	if ok {
		a.Cause = ctxerr.Harmless(a.Cause) // a is this caller's own
	}
	if errors.Is(err, pool.ErrOverloaded) {
		why = "too late for pool_queue_target, or for its context: "
	}
	if ok && a.Timeout() && a.Waited > 0 {
		switch {
		case a.Allowed < a.Max && a.Active-a.Creating >= a.Allowed:
			why = fmt.Sprintf("the server allows us %d of pool_max_conns=%d now, and all are in use: ", a.Allowed, a.Max)
			by = p.HeldBy()
		case a.Active-a.Creating >= a.Max:
			why = fmt.Sprintf("all pool_max_conns=%d connections are in use, and SetMaxOpenConns does not raise this limit: ", a.Max)
			by = p.HeldBy()
		case a.Creating > 0:
			why = "a new connection is being made, and the server has not answered yet: "
		}
	}
	return &acquireError{p.report.Target(), why, by, err}
}

// acquireError writes its text when it is asked for: when a thousand requests are cancelled at once,
// nobody reads most of their errors, and the texts would cost five times as much as all else.
type acquireError struct {
	target, why, by string
	err             error
}

func (e *acquireError) Error() string {
	return fmt.Sprintf("pooldriver: no connection to %s: %s%v%s", e.target, e.why, e.err, e.by)
}

func (e *acquireError) Unwrap() error { return e.err }

// DrainingError is the error of new work, which Drain refuses.
func (p *Pool) DrainingError() error {
	return fmt.Errorf("pooldriver: no connection to %s: Connector.Drain was called, and only work that had begun before may finish: %w", p.report.Target(), pool.ErrClosed)
}

// longWait: a caller whose context ends after such a wait has given up, whoever has ended the context: a proxy and a browser cancel it.
const longWait = time.Second

// failureOf says why a statement got no connection.
func failureOf(err error) report.Failure {
	_, dialled := errors.AsType[*pool.CreateError](err)
	switch {
	case dialled:
		return report.DialFailed
	case errors.Is(err, pool.ErrTimeout):
		return report.Timeout
	case errors.Is(err, pool.ErrTooManyWaiters):
		return report.QueueFull
	case errors.Is(err, pool.ErrOverloaded):
		return report.Overloaded
	case errors.Is(err, pool.ErrUnavailable):
		return report.BreakerOpen
	case errors.Is(err, pool.ErrClosed):
		return report.Closed
	case errors.Is(err, context.DeadlineExceeded), WaitOf(err) >= longWait:
		return report.GaveUp
	}
	return report.Cancelled
}

// createError is the error of a failed dial. It names the target already.
func (p *Pool) createError(create *pool.CreateError) error {
	err := create.Err
	// A panic of the driver or of a credential source. A panic of AfterConnect is wrapped already.
	if _, ok := err.(*pool.PanicError); ok { //nolint:errorlint // a wrapped one names the target itself
		err = fmt.Errorf("pooldriver: connecting to %s: %w", p.report.Target(), err)
	}
	if create.Ago != 0 {
		err = fmt.Errorf("%w (not dialled again: the last dial was refused %v ago)", err, create.Ago.Round(time.Microsecond))
	}
	return err
}

// WaitOf returns how long a statement has waited. err is its error of Acquire or AcquireNow, before Explain.
func WaitOf(err error) time.Duration {
	switch own := err.(type) { //nolint:errorlint // the pool made err itself; an error inside it is another statement's
	case *pool.AcquireError:
		return own.Waited
	case *pool.CreateError:
		return own.Waited
	}
	return 0
}

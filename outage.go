package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// What the log and the callers are told of dials that fail. How often the pool dials
// during an outage: pool/outage.go.

// dialEnded tells the log when dials begin to fail, while they go on failing, and
// when they succeed again.
func (c *core) dialEnded(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the connector is being closed
	}
	if err != nil && c.serverFull(err) {
		if open := c.pool.Stats().Count - 1; open > 0 { // the one that was refused still counts
			c.report.ServerFull(open, err)
			return
		}
	}
	c.report.DialsEnded(err)
}

// refusesUs reports whether a server has refused user or password.
func (c *core) refusesUs(err error) bool {
	return c.dialect.Diagnose(err)&dialects.AuthFailed != 0
}

// serverFull reports whether a server has no room for another connection.
func (c *core) serverFull(err error) bool {
	return c.dialect.Diagnose(err)&dialects.ServerFull != 0
}

// acquireError is the error of a caller that got no connection. The error of a failed dial
// stays as it is. The pool's other errors get the target's name and a reason. errors.Is
// and errors.As find the error below. A caller that waited in a closed wait cycle is told
// so. w is nil for a caller without a task.
func (c *core) acquireError(err error, w *waiter) error {
	c.report.AcquireFailed(failureOf(err))
	if create, ok := errors.AsType[*pool.CreateError](err); ok {
		return c.createError(create)
	}
	if err == pool.ErrClosed && c.draining.Load() {
		return c.drainingError() // it came when the last connection had just come back
	}
	why, by := "", ""
	a, ok := errors.AsType[*pool.AcquireError](err)
	if ok {
		a.Cause = ctxerr.Harmless(a.Cause) // it is this caller's own
	}
	if ok && a.Timeout() && a.Waited > 0 {
		found := c.starvation.cycles.Around(a.Waited)
		switch {
		case found != nil:
			return fmt.Errorf("pooldriver: no connection to %s: %s; %s: %w (%s)", c.report.Target(), waitgraph.InCycle, w.advice(c), err, found.Names())
		case a.Allowed < a.Max && a.Active-a.Creating >= a.Allowed:
			why = fmt.Sprintf("the server allows us %d of pool_max_conns=%d now, and all are in use: ", a.Allowed, a.Max)
			by = c.heldBy()
		case a.Active-a.Creating >= a.Max:
			why = fmt.Sprintf("all are in use that pool_max_conns=%d allows, which SetMaxOpenConns does not raise: ", a.Max)
			by = c.heldBy()
		case a.Creating > 0:
			why = "a connection to it is being made and has not been answered yet: "
		}
	}
	return fmt.Errorf("pooldriver: no connection to %s: %s%w%s", c.report.Target(), why, err, by)
}

// failureOf is the reason of an error of the pool's.
func failureOf(err error) report.Failure {
	_, dialled := errors.AsType[*pool.CreateError](err)
	switch {
	case dialled:
		return report.DialFailed
	case errors.Is(err, pool.ErrTimeout):
		return report.Timeout
	case errors.Is(err, pool.ErrTooManyWaiters):
		return report.QueueFull
	case errors.Is(err, pool.ErrUnavailable):
		return report.BreakerOpen
	case errors.Is(err, pool.ErrClosed):
		return report.Closed
	}
	return report.Cancelled
}

func (c *core) createError(create *pool.CreateError) error {
	err := create.Err
	// The driver's panic, or a credential source's. One of AfterConnect is wrapped already.
	if _, ok := err.(*pool.PanicError); ok { //nolint:errorlint // a wrapped one names the target itself
		err = fmt.Errorf("pooldriver: connecting to %s: %w", c.report.Target(), err)
	}
	if create.Ago == 0 {
		return err
	}
	return fmt.Errorf("%w (not dialled again: this was refused %v ago)", err, create.Ago.Round(time.Microsecond))
}

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/pool"
)

// What is said of dials that fail: in the log, and to those who get no connection.
// How often is dialled during an outage is the pool's: pool/outage.go.

// outageLogEvery is the least time between two warnings.
const outageLogEvery = 10 * time.Second

// outage is a row of failed dials.
type outage struct {
	mu     sync.Mutex // protects following fields
	failed int        // dials in a row; 0: none is known to fail
	since  time.Time
	told   bool      // the log has heard of this outage
	warned time.Time // the last time, also of an earlier outage
}

// dialEnded tells the log when dials begin to fail, while they go on failing, and
// when they succeed again.
func (c *Connector) dialEnded(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the connector is being closed
	}
	failed, since, tell := c.outage.counts(err != nil, time.Now())
	lasted := time.Since(since).Round(time.Millisecond)
	switch {
	case !tell:
	case err == nil:
		c.log.Info("pooldriver: connecting succeeds again", "target", c.template.Target(), "failed", failed, "after", lasted)
	default:
		c.log.Warn("pooldriver: connecting fails", "target", c.template.Target(), "error", err, "failed", failed, "for", lasted)
	}
}

// counts counts a dial, and says whether the log hears of it, and what. The log is the
// program's code, and so not written under the lock.
func (o *outage) counts(fails bool, now time.Time) (failed int, since time.Time, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !fails {
		failed, since, tell = o.failed, o.since, o.told
		o.failed, o.told = 0, false
		return failed, since, tell
	}
	if o.failed++; o.failed == 1 {
		o.since = now
	}
	if tell = o.warned.IsZero() || now.Sub(o.warned) >= outageLogEvery; tell {
		o.told, o.warned = true, now
	}
	return o.failed, o.since, tell
}

// refusesUs reports whether a server has refused user or password.
func (c *Connector) refusesUs(err error) bool {
	return c.dialect.Diagnose(err)&dialects.AuthFailed != 0
}

// acquireError is what a caller gets who got no connection. A failed dial
// speaks for itself; the pool's other reasons get the target's name. What is
// below stays within reach of errors.Is and errors.As. Who has waited in a closed
// wait cycle is told so; w is nil for who belongs to no task.
func (c *Connector) acquireError(err error, w *waiter) error {
	if create, ok := errors.AsType[*pool.CreateError](err); ok {
		return c.createError(create)
	}
	why := ""
	a, ok := errors.AsType[*pool.AcquireError](err)
	if ok {
		a.Cause = ctxerr.Harmless(a.Cause) // it is this caller's own
	}
	if ok && a.Timeout() && a.Waited > 0 {
		found := c.starvation.cycles.Around(a.Waited)
		switch {
		case found != nil:
			return fmt.Errorf("pooldriver: no connection to %s: %s; %s: %w (%s)", c.template.Target(), inCycle, w.advice(c), err, found.Names())
		case a.Active-a.Creating >= a.Max:
			why = fmt.Sprintf("all are in use that pool_max_conns=%d allows, which SetMaxOpenConns does not raise: ", a.Max)
		case a.Creating > 0:
			why = "a connection to it is being made and has not been answered yet: "
		}
	}
	return fmt.Errorf("pooldriver: no connection to %s: %s%w", c.template.Target(), why, err)
}

func (c *Connector) createError(create *pool.CreateError) error {
	err := create.Err
	// The driver's panic, or a credential source's. One of AfterConnect is wrapped already.
	if _, ok := err.(*pool.PanicError); ok { //nolint:errorlint // a wrapped one names the target itself
		err = fmt.Errorf("pooldriver: connecting to %s: %w", c.template.Target(), err)
	}
	if create.Ago == 0 {
		return err
	}
	return fmt.Errorf("%w (not dialled again: the last dials have failed, this one %v ago)", err, create.Ago.Round(time.Microsecond))
}

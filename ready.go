package pooldriver

import (
	"context"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/pool"
)

// proofLasts is how long the answer of a server is proof enough for Ready.
const proofLasts = time.Second

// checkReady is Connector.Ready.
func (c *core) checkReady(ctx context.Context) error {
	var err error
	for range c.config.MaxConns + 1 { // each one that does not answer is gone, and one is new
		if c.draining.Load() {
			return c.drainingError()
		}
		lease, acquire := c.pool.AcquireNow(ctx)
		if acquire == pool.ErrNoneNow {
			if c.pool.Stats().Lent > 0 && !c.report.DialsFail() {
				return nil
			}
			lease, acquire = c.pool.Acquire(ctx) // it waits for a dial, not for borrowers
		}
		if acquire != nil {
			return c.acquireError(acquire, nil)
		}
		if err = c.prove(ctx, lease); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("pooldriver: no connection to %s that answers: %w", c.report.Target(), err)
	}
	return nil
}

// prove has the server of a connection answer, and gives the connection back. One that does
// not answer is closed, unless its end would be the end of its database.
func (c *core) prove(ctx context.Context, lease pool.Lease[*realConn]) (err error) {
	r, keep := lease.Value(), false
	defer func() { // also by a panic of the driver
		if keep || r.Irreplaceable() {
			mustEnd(lease.Release())
		} else {
			c.discard(r, lease, report.CheckFailed)
		}
	}()
	if last := c.proven.Load(); last == nil || time.Since(*last) >= proofLasts {
		if err := c.healthy(ctx, r); err != nil {
			return err
		}
		now := time.Now()
		c.proven.Store(&now)
	}
	keep = true
	return nil
}

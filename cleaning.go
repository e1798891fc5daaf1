package pooldriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// takeBack ends a checkout's hold on a real connection: lent again at once,
// rolled back and cleaned behind the caller, or closed, as settle decides.
func (c *Connector) takeBack(r *realConn, lease pool.Lease[*realConn]) {
	if r.effect&dialects.ForgetPrepared != 0 {
		// What was prepared after that statement goes with its world, too.
		r.stmts.expireAll()
	}
	step := c.inspect(r)
	switch {
	case step.discard:
		c.stats.discards.Add(1)
		mustEnd(lease.Discard())
	case step.rollback || step.clean:
		c.restoring.Add(1)
		go c.restore(r, lease, step)
	default:
		r.effect, r.doubt = dialects.Clean, false
		mustEnd(lease.Release())
	}
}

// inspect looks at what a checkout has left. A driver that panicked is asked
// nothing more: it may hold a lock of its own. One that panics here costs the
// connection, and not the program, which has nothing to do with it.
func (c *Connector) inspect(r *realConn) (step nextStep) {
	if r.broken || r.running > 0 {
		return nextStep{discard: true}
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("pooldriver: the driver panicked when asked whether a connection is valid; it was closed", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
			step = nextStep{discard: true}
		}
	}()
	return settle(leftBehind{
		status: r.txStatus(),
		effect: r.effect,
		reset:  c.config.Reset,
		valid:  r.validator == nil || r.validator.IsValid(),
		doubt:  r.doubt,
	})
}

// mustEnd: a binding ends its lease exactly once. If it did not, two borrowers
// could hold one connection, and nothing that follows would be true.
func mustEnd(err error) {
	if err != nil {
		panic("pooldriver: broken invariant: " + err.Error())
	}
}

// restore brings a real connection back to its state at connect and returns
// it to the pool. It has its own, bounded context: the borrower's may be what
// ended the checkout. If anything fails, or the driver panics, the connection
// is closed.
func (c *Connector) restore(r *realConn, lease pool.Lease[*realConn], step nextStep) {
	restored := false
	defer c.restoring.Add(-1)
	defer func() {
		if restored {
			mustEnd(lease.Release())
			return
		}
		if p := recover(); p != nil {
			c.log.Error("pooldriver: the driver panicked while a connection was cleaned; it was closed", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
		}
		c.stats.discards.Add(1)
		mustEnd(lease.Discard())
	}()
	ctx, cancel := context.WithTimeout(context.Background(), c.config.CleanTimeout)
	defer cancel()
	if step.rollback && !c.rollback(ctx, r) {
		return
	}
	if step.clean && !c.clean(ctx, r) {
		return
	}
	r.effect, r.doubt = dialects.Clean, false
	restored = true
}

// rollback ends the transaction that a checkout left open, or may have.
func (c *Connector) rollback(ctx context.Context, r *realConn) bool {
	left := r.txStatus()
	err := r.session.Rollback(ctx)
	if left == dialects.TxOpen || left == dialects.TxFailed {
		c.stats.rollbacks.Add(1)
		c.log.Warn("pooldriver: a transaction was open when its connection came back, and was rolled back; if it was begun by hand, use BeginTx, which keeps the connection", "target", c.template.Target())
	}
	// Where nobody can say that it is over, it is not taken for over.
	return err == nil && r.session.TxStatus() == dialects.TxNone
}

// clean brings the session back to its state at connect, AfterConnect included.
func (c *Connector) clean(ctx context.Context, r *realConn) bool {
	effect := r.effect
	if c.config.Reset == ResetAlways {
		effect |= dialects.Suspect // this mode is for what no text shows
	}
	kept, err := r.session.Clean(ctx, effect)
	if err != nil {
		if !errors.Is(err, dialects.ErrCannotClean) {
			c.log.Warn("pooldriver: a connection could not be cleaned, and was closed", "target", c.template.Target(), "error", err)
		}
		return false
	}
	if !kept {
		r.stmts.forget()
	}
	if err := c.afterConnect(ctx, r.session); err != nil {
		c.log.Warn("pooldriver: a cleaned connection was closed", "target", c.template.Target(), "error", err)
		return false
	}
	c.stats.cleanings.Add(1)
	return true
}

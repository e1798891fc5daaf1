package pooldriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
)

// dial makes one real connection of the template. The pool calls it in the
// background, on a context of its own bounded by Config.ConnectTimeout.
func (c *Connector) dial(ctx context.Context) (r *realConn, err error) {
	epoch := c.epoch.Load()
	c.open.Add(1)
	var s dialects.Session
	defer func() {
		if r != nil {
			return
		}
		// An error, or a panic on its way to the pool.
		c.stats.dialErrors.Add(1)
		if s != nil {
			c.closeSession(s)
		}
		c.ended()
	}()
	if s, err = c.dialSession(ctx); err != nil {
		return nil, fmt.Errorf("pooldriver: connecting to %s: %w", c.template.Target(), err)
	}
	if err := c.afterConnect(ctx, s); err != nil {
		return nil, fmt.Errorf("pooldriver: a connection to %s: %w", c.template.Target(), err)
	}
	r = newRealConn(s, c.traits, c.config.stmtsPerConn(), epoch)
	c.change(func(all []*realConn) []*realConn { return append(all, r) })
	return r, nil
}

// afterConnect runs the program's hook. A transaction that it leaves open would
// be the first borrower's, whose work would be rolled back with it.
func (c *Connector) afterConnect(ctx context.Context, s dialects.Session) error {
	if c.config.AfterConnect == nil {
		return nil
	}
	if err := c.config.AfterConnect(ctx, s.Conn()); err != nil {
		return fmt.Errorf("AfterConnect: %w", err)
	}
	switch s.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		return errors.New("AfterConnect left a transaction open, or switched autocommit off; it must leave neither")
	}
	return nil
}

func (c *Connector) dialSession(ctx context.Context) (dialects.Session, error) {
	if c.credentials == nil {
		return c.template.Dial(ctx, nil)
	}
	var refused uint64
	for {
		cred, serial, err := c.credential(ctx, refused)
		if err != nil {
			return nil, err
		}
		s, err := c.template.Dial(ctx, cred)
		if err == nil || refused != 0 || c.dialect.Diagnose(err)&dialects.AuthFailed == 0 {
			return s, err
		}
		refused = serial
	}
}

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// dial makes one real connection of the template. The pool calls it in the
// background, on a context of its own bounded by Config.ConnectTimeout.
func (c *Connector) dial(ctx context.Context) (r *realConn, err error) {
	generation := c.poolGeneration.Load()
	c.open.Add(1)
	var s dialects.Session
	left := false // to AfterConnect, which has not returned
	defer func() {
		if r != nil {
			return
		}
		// An error, or a panic on its way to the pool.
		c.stats.dialErrors.Add(1)
		if left {
			return
		}
		if s != nil {
			c.closeSession(s, destroyTimeout)
		}
		c.ended()
	}()
	if s, err = c.dialSession(ctx); err != nil {
		return nil, fmt.Errorf("pooldriver: connecting to %s: %w", c.template.Target(), err)
	}
	if left, err = c.boundedAfterConnect(ctx, s); err != nil {
		return nil, fmt.Errorf("pooldriver: a connection to %s: %w", c.template.Target(), err)
	}
	r = c.newRealConn(s, generation)
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

// hookGrace is how long AfterConnect may take to return when its context has ended.
const hookGrace = 100 * time.Millisecond

// boundedAfterConnect is afterConnect, for no longer than ctx lasts and a little
// more, so that a dial ends then whatever the program's hook does. left tells that
// the hook has not returned. The session is its own until it does, and is closed
// then.
func (c *Connector) boundedAfterConnect(ctx context.Context, s dialects.Session) (left bool, _ error) {
	if c.config.AfterConnect == nil {
		return false, nil
	}
	done := make(chan error, 1)
	go func() {
		err, returned := error(nil), false
		defer func() {
			if !returned {
				err = &pool.PanicError{Hook: "AfterConnect", Value: recover(), Stack: debug.Stack()}
			}
			done <- err
		}()
		err = c.afterConnect(ctx, s)
		returned = true
	}()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
	}
	grace := time.NewTimer(hookGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return false, err
	case <-grace.C:
	}
	if cut, ok := s.(dialects.Severable); ok {
		cut.Sever() // in case it waits for the server
	}
	c.stats.orphans.Add(1)
	go func() {
		err := <-done
		c.closeSession(s, destroyTimeout)
		c.ended()
		c.log.Debug("pooldriver: AfterConnect has returned after its dial was given up", "target", c.template.Target(), "error", err)
	}()
	return true, fmt.Errorf("AfterConnect does not return, although its context has ended: %w (pool_connect_timeout=%v)", ctx.Err(), c.config.ConnectTimeout)
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
		if err == nil || refused != 0 || !c.refusesUs(err) {
			return s, err
		}
		refused = serial
	}
}

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/bounded"
	"github.com/pooldriver/pooldriver/pool"
)

// dial makes one real connection. The pool calls it in the background, with a context
// that Config.ConnectTimeout bounds.
func (c *core) dial(ctx context.Context) (r *realConn, err error) {
	generation := c.poolGeneration.Load()
	c.real.Begin()
	var s dialects.Session
	left := false // AfterConnect has not returned, and has the session
	defer func() {
		if r != nil {
			return
		}
		// An error, or a panic on its way to the pool.
		c.report.DialErrors.Add(1)
		if left {
			return
		}
		if s != nil {
			c.closeSession(s, destroyTimeout)
		}
		c.real.End()
	}()
	if s, err = c.dialSession(ctx); err != nil {
		return nil, fmt.Errorf("pooldriver: connecting to %s: %w", c.report.Target(), err)
	}
	if left, err = c.boundedAfterConnect(ctx, s); err != nil {
		return nil, fmt.Errorf("pooldriver: a connection to %s: %w", c.report.Target(), err)
	}
	r = c.newRealConn(s, generation)
	c.real.Add(r)
	return r, nil
}

// afterConnect runs the program's hook. The hook must not leave a transaction open: the
// first borrower's work would be part of it, and would be rolled back.
func (c *core) afterConnect(ctx context.Context, s dialects.Session) error {
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

// boundedAfterConnect is afterConnect for as long as ctx lasts, and hookGrace. So a dial
// ends in time whatever the program's hook does. left reports that the hook has not
// returned. Then the session is the hook's until it returns, and is closed after that.
func (c *core) boundedAfterConnect(ctx context.Context, s dialects.Session) (left bool, _ error) {
	if c.config.AfterConnect == nil {
		return false, nil
	}
	running, err := bounded.Call(ctx, hookGrace, func() error { return c.afterConnect(ctx, s) }, func(value any) error {
		return &pool.PanicError{Hook: "AfterConnect", Value: value, Stack: debug.Stack()}
	})
	if running == nil {
		return false, err
	}
	if cut, ok := s.(dialects.Severable); ok {
		cut.Sever() // in case the hook waits for the server
	}
	c.report.Orphans.Add(1)
	go func() {
		err := <-running
		c.closeSession(s, destroyTimeout)
		c.real.End()
		c.report.HookReturned(err)
	}()
	return true, fmt.Errorf("AfterConnect does not return, although its context has ended: %w (pool_connect_timeout=%v)", ctx.Err(), c.config.ConnectTimeout)
}

// dialSession dials with the DSN's user and password, or with those of
// Config.Credentials. If the server refuses these, it asks the source once more.
func (c *core) dialSession(ctx context.Context) (dialects.Session, error) {
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

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Credential is a user and password together, with the time until which they
// are good. It prints without the password.
type Credential = dialects.Credential

// CredentialSource supplies user and password for new connections: from a
// vault, or tokens made on the spot (IAM). One call serves all dials until
// shortly before Credential.Expires (zero: never); it is called again early if
// the server refuses what it gave, once per dial. Calls never overlap. An
// error fails the dial, unless the last credential has not expired yet; open
// connections go on. When it gives another user or password than before, the
// connections made with the old one are replaced as they come back. The context
// is bounded by Config.ConnectTimeout.
type CredentialSource func(ctx context.Context) (Credential, error)

// credentials caches what a source gave.
type credentials struct {
	source CredentialSource
	// turn is a lock that can be waited for with a context; it is held while
	// the source, foreign code, runs, and guards the fields below.
	turn    chan struct{}
	current *Credential
	serial  uint64    // counts what the source has given
	renew   time.Time // when to ask again; zero is never
}

func newCredentials(source CredentialSource) *credentials {
	if source == nil {
		return nil
	}
	return &credentials{source: source, turn: make(chan struct{}, 1)}
}

// get returns a credential that is good now. refused is the serial of one that
// the server did not take, 0 if none. changed tells that the source gave
// another user or password than before.
func (c *credentials) get(ctx context.Context, refused uint64) (cred *Credential, serial uint64, changed bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, 0, false, ctx.Err()
	}
	now := time.Now()
	fresh := c.current != nil && (c.renew.IsZero() || now.Before(c.renew))
	if fresh && c.serial != refused {
		return c.current, c.serial, false, nil
	}
	next, err := c.source(ctx)
	if err != nil {
		if c.current != nil && c.serial != refused && now.Before(c.current.Expires) {
			return c.current, c.serial, false, nil
		}
		return nil, 0, false, fmt.Errorf("the credential source failed: %w", err)
	}
	if !next.Expires.IsZero() && !now.Before(next.Expires) {
		return nil, 0, false, fmt.Errorf("the credential source gave a credential that expired %v ago", now.Sub(next.Expires).Round(time.Second))
	}
	changed = c.current != nil && (c.current.User != next.User || c.current.Password != next.Password)
	c.current = &next
	c.serial++
	c.renew = renewal(now, next.Expires)
	return c.current, c.serial, changed, nil
}

// renewal is when to ask for the next credential: a minute before this one
// expires, or after four fifths of its time if that is later.
func renewal(now, expires time.Time) time.Time {
	if expires.IsZero() {
		return time.Time{}
	}
	early := expires.Add(-time.Minute)
	if share := now.Add(expires.Sub(now) * 4 / 5); share.After(early) {
		return share
	}
	return early
}

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
		cred, serial, changed, err := c.credentials.get(ctx, refused)
		if err != nil {
			return nil, err
		}
		if changed {
			c.pool.Flush()
		}
		own := *cred
		s, err := c.template.Dial(ctx, &own)
		if err == nil || refused != 0 || c.dialect.Diagnose(err)&dialects.AuthFailed == 0 {
			return s, err
		}
		refused = serial
	}
}

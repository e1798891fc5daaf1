package pooldriver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// While a connector drains, what has begun may finish and what is new is refused. Who may
// finish: docs/adr/0014.
//
// Something that has begun may be without a connection for a while: a transaction that was
// deferred and has run no statement, and a statement that moves from a dead connection to
// another one. core.unattached counts both, from before they have no connection until
// they have one again or are over. Nothing that is new comes to be counted once draining is
// set: a deferred transaction is counted first and looks at draining then.

// drainLook is how often Drain looks whether all connections have come back.
const drainLook = time.Millisecond

// drain is Connector.Drain.
func (c *core) drain(ctx context.Context) error {
	c.draining.Store(true)
	if !c.closeUnused(ctx) {
		return c.notDrained(ctx)
	}
	if err := c.pool.CloseContext(ctx); err != nil {
		return fmt.Errorf("pooldriver: draining %s: all work is done, but not all connections are closed: %w", c.report.Target(), err)
	}
	c.close()
	return nil
}

// closeUnused waits until nothing that has begun is left, and closes the pool then; see
// pool.CloseUnused. It waits for dials, too, but not for long: a server may not notice at
// once that a dial was given up. It returns false if ctx ends first.
func (c *core) closeUnused(ctx context.Context) bool {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	var unused time.Time // since when nothing but a dial is under way
	for {
		s := c.pool.Stats()
		switch {
		case s.Lent > 0 || s.Waiting > 0 || c.unattached.Load() > 0:
			unused = time.Time{}
		case s.Creating > 0 && unused.IsZero():
			unused = time.Now()
		case s.Creating > 0 && time.Since(unused) < closeWait:
		case c.pool.CloseUnused(s.Moves):
			return true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// admits reports whether a statement may take a connection that has none: not if the
// connector drains, unless its task has a connection or one around that. b is nil without a
// task.
func (c *core) admits(b *binding, from *task.Task) bool {
	return !c.draining.Load() || c.serves(b, from)
}

func (c *core) serves(b *binding, from *task.Task) bool {
	if b != nil && b.hasAny() {
		return true
	}
	for t := from; t != nil; t = t.From() {
		if around := c.bindingOf(t); around != nil && around.hasAny() {
			return true
		}
	}
	return false
}

// hasAny reports whether the binding has a connection. (held counts those, too, that are
// only on their way to it.)
func (b *binding) hasAny() bool {
	for _, r := range b.connector.connections() {
		if r.holder.Load() == b {
			return true
		}
	}
	return false
}

// unattach counts t, which is deferred and has no connection. It reports false if t may not
// begin any more. from is the task that its context was made of.
func (t *transaction) unattach(from *task.Task) bool {
	c := t.checkout.connector
	t.unattached = true
	c.unattached.Add(1)
	if !c.admits(nil, from) {
		t.attached()
		return false
	}
	return true
}

// attached ends what unattach began: t has a connection, or is over.
func (t *transaction) attached() {
	if t.unattached {
		t.unattached = false
		t.checkout.connector.unattached.Add(-1)
	}
}

func (c *core) drainingError() error {
	return fmt.Errorf("pooldriver: no connection to %s: Connector.Drain was called, and only what had begun by then may finish: %w", c.report.Target(), pool.ErrClosed)
}

// notDrained is Drain's error when ctx has ended.
func (c *core) notDrained(ctx context.Context) error {
	s, holders := c.pool.Stats(), c.holders()
	restoring, unattached := c.restoring.Load(), c.unattached.Load()
	return fmt.Errorf("pooldriver: draining %s: connections are still in use: %w; end what holds them and call Drain again, or call Close (%s; lent %d, of these being cleaned %d; waiting %d; begun and without a connection %d)",
		c.report.Target(), ctxerr.WhatEnded(ctx), strings.Join(holders, ", "), s.Lent, restoring, s.Waiting, unattached)
}

// holders says who has a connection, and why. Of one on which a statement is running nobody
// can tell more.
func (c *core) holders() (list []string) {
	for _, r := range c.connections() {
		b := r.holder.Load()
		if b == nil {
			continue
		}
		h := holder{task: b.task}
		if r.TryLock() {
			if h.pin, h.since = r.use.pin, r.use.since; r.Begun() {
				h.pin = pinning.Tx
			}
			r.unlockAndRecheck()
		}
		list = append(list, h.String())
	}
	return list
}

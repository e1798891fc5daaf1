package connpool

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

// While a pool drains, work that has begun may finish, and new work is refused. docs/adr/0014
// says who may finish.

// drainLook is how often Drain looks whether all connections have come back.
const drainLook = time.Millisecond

// Begun tells of work that has begun and is not known to the pool.
type Begun struct {
	// Unattached counts work that has no connection for a while. Such work is counted from before
	// it has no connection, until it has one again or is over. While the pool drains, no new work
	// is counted.
	Unattached func() int64
	// Holders says who has a connection.
	Holders func() []string
	// First is called when new work is refused. Drain returns its error.
	First func() error
	// Last is called when all other work is over.
	Last func()
	// Hasty: nothing was written, so Drain waits for the ends of connections no longer than Close. The server may be
	// silent.
	Hasty bool
}

// Drain refuses new work, waits until all work that has begun is over, and closes the pool.
func (p *Pool) Drain(ctx context.Context, begun Begun) error {
	p.draining.Store(true)
	if begun.Hasty {
		p.closingIdle.Store(true)
	}
	p.pool.AdmitAll() // who waits has begun
	if err := begun.First(); err != nil {
		return err
	}
	if !p.closeUnused(ctx, begun) {
		return p.notDrained(ctx, begun)
	}
	if begun.Hasty {
		var last sync.WaitGroup
		last.Go(begun.Last)
		p.Close()
		last.Wait()
		return nil
	}
	if err := p.pool.CloseContext(ctx); err != nil {
		return fmt.Errorf("pooldriver: draining %s: all work is done, but not all connections are closed: %w", p.report.Target(), err)
	}
	begun.Last()
	p.Close()
	return nil
}

// closeUnused waits until all work that has begun is over, and then closes the pool; see
// pool.CloseUnused. It waits for dials, too, but not for long: a server may not notice at once
// that a dial was given up, which is no matter if Drain is hasty. It returns false if ctx ends first.
func (p *Pool) closeUnused(ctx context.Context, begun Begun) bool {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	var unused time.Time // since when nothing but a dial is under way
	for {
		s := p.pool.Stats()
		switch {
		case s.Lent > 0 || s.Waiting > 0 || begun.Unattached() > 0:
			unused = time.Time{}
		case s.Creating > 0 && unused.IsZero():
			unused = time.Now()
		case s.Creating > 0 && time.Since(unused) < closeWait && !begun.Hasty:
		case p.pool.CloseUnused(s.Moves):
			return true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// notDrained is Drain's error when ctx has ended.
func (p *Pool) notDrained(ctx context.Context, begun Begun) error {
	s, holders := p.pool.Stats(), begun.Holders()
	restoring, unattached := p.restoring.Load(), begun.Unattached()
	return fmt.Errorf("pooldriver: draining %s: connections are still in use: %w; end what holds them and call Drain again, or call Close (%s; lent %d, of these being cleaned %d; waiting %d; begun and without a connection %d)",
		p.report.Target(), ctxerr.WhatEnded(ctx), strings.Join(holders, "; "), s.Lent, restoring, s.Waiting, unattached)
}

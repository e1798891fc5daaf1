package pool

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Warm opens resources until Config.Min exist and MinIdle are idle: the first one alone, then up to eight
// at once. It stops at the first error and returns it. The resources that it has opened stay. A pool that is not
// warmed begins to fill at its first use.
func (p *Pool[T]) Warm(ctx context.Context) error {
	const most = 8
	for atOnce := 1; ; {
		p.mu.Lock()
		if p.mode&modeClosed != 0 {
			p.mu.Unlock()
			return ErrClosed
		}
		if p.mode&(modeInactive|modeRecovering) != 0 {
			err := p.acquireErrorLocked(ErrUnavailable, 0)
			p.mu.Unlock()
			return err
		}
		open := p.liveLocked()
		missing := max(p.min-open, p.minIdle-p.idle.n)
		if missing <= 0 || p.total-p.creating >= p.max {
			p.used = true
			p.balanceLocked()
			p.mu.Unlock()
			return nil
		}
		if p.creating == 0 && !p.spareLocked() { // the server is full
			err := &CreateError{Err: p.lastCreateErr}
			p.mu.Unlock()
			return err
		}
		if p.creating >= missing || !p.spareLocked() {
			ended := p.createEndsLocked()
			p.mu.Unlock()
			if err := p.awaitCreate(ctx, ended); err != nil {
				return err
			}
			continue
		}
		all := p.reserveForLocked(ctx, min(missing-p.creating, atOnce))
		p.mu.Unlock()
		var first error
		for _, w := range all {
			if err := p.warmOne(ctx, w); first == nil {
				first = err
			}
		}
		if first != nil {
			return first
		}
		atOnce = most
	}
}

// reserveForLocked starts up to n creates, as far as there is room, each for a waiter of its own.
func (p *Pool[T]) reserveForLocked(ctx context.Context, n int) (all []*waiter[T]) {
	for range n {
		if !p.spareLocked() {
			break
		}
		p.seq++
		w := p.newWaiterLocked(ctx, &ticket{seq: p.seq, start: p.nowLocked()})
		p.reserveLocked(w)
		all = append(all, w)
	}
	return all
}

// createEndsLocked is closed when some create has ended.
func (p *Pool[T]) createEndsLocked() <-chan struct{} {
	if p.createEnded == nil {
		p.createEnded = make(chan struct{})
	}
	return p.createEnded
}

// awaitCreate sleeps until ended is closed.
func (p *Pool[T]) awaitCreate(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-p.stop.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("pool: warm: %w", ctx.Err())
	}
}

// warmOne waits for the resource of w and makes it idle.
func (p *Pool[T]) warmOne(ctx context.Context, w *waiter[T]) error {
	select {
	case <-w.ch:
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.state == stateReserved {
			p.alone.remove(w)
			w.state = stateGone
		} else if w.r != nil {
			p.count.revoked++
			w.r.w = nil
			p.passOnLocked(w.r)
		}
		return fmt.Errorf("pool: warm: %w", ctx.Err())
	}
	if w.err != nil && w.err != ErrNoneNow {
		return w.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.err != nil { // the server is full
		return &CreateError{Err: p.lastCreateErr}
	}
	p.count.revoked++
	w.r.w = nil // this wait is not counted
	p.passOnLocked(w.r)
	return nil
}

// Resize changes Max. When it grows, waiters are served at once; when it
// shrinks, idle resources are destroyed, oldest first, and borrowed ones as
// they come back, until no more than n are left. A Min or MinIdle above n counts as n.
func (p *Pool[T]) Resize(n int) error {
	if n < 1 {
		return fmt.Errorf("pool: resize to %d: must be at least 1", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode&modeClosed != 0 {
		return ErrClosed
	}
	p.max, p.min, p.minIdle = n, min(p.cfg.Min, n), min(p.cfg.MinIdle, n)
	if p.total > n {
		p.mode |= modeOver
	}
	for p.idle.n > 0 && p.total-p.destroying > n {
		p.retireLocked(p.idle.popOldest(), ReasonResized)
	}
	p.balanceLocked()
	return nil
}

// Flush replaces every resource that is not preserved (Config.Preserve). Idle resources are
// destroyed at once, borrowed resources when they come back. A resource that is just being created
// is destroyed after its first use. No borrower is interrupted.
func (p *Pool[T]) Flush() { p.FlushOthers(context.Background()) }

// FlushOthers is Flush, called by Create when Create learns that the other resources must go. ctx is
// the context of this Create. The resource of this Create stays.
func (p *Pool[T]) FlushOthers(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode&modeClosed != 0 {
		return
	}
	p.generation++
	p.growth.proven = 0 // the next server may be another one
	if r, ok := ctx.Value(creating{}).(*resource[T]); ok && r.pool == p {
		r.generation = p.generation
	}
	var kept []*resource[T]
	for p.idle.n > 0 {
		if r := p.idle.popOldest(); r.preserved {
			kept = append(kept, r)
		} else {
			p.retireLocked(r, ReasonFlushed)
		}
	}
	for _, r := range kept {
		p.idle.restore(r)
	}
	p.balanceLocked()
}

// RefuseWaiting gives all who wait an AcquireError with this reason. Who comes later waits as ever.
func (p *Pool[T]) RefuseWaiting(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failAllLocked(func(w *waiter[T]) error { return p.acquireErrorLocked(reason, w.start.Load()) })
}

// Close closes the pool. Waiting acquirers get an AcquireError with ErrClosed. Idle resources are destroyed, and
// Close returns when they are destroyed, after DestroyTimeout at the latest. A borrowed resource is
// destroyed at its release. The acquirers that follow its borrower get ErrClosed if they are not served. A
// resource that is being created is destroyed when Create returns. A second Close does nothing. A hook must not
// wait for Close: it must call Close in a new goroutine.
func (p *Pool[T]) Close() {
	var idle sync.WaitGroup
	p.mu.Lock()
	p.closeLocked(&idle)
	p.mu.Unlock()
	p.halt()
	idle.Wait()
}

// CloseContext calls Close, and waits until every resource is destroyed and every Create has
// returned, or until ctx is done. Its only error is that of ctx.
func (p *Pool[T]) CloseContext(ctx context.Context) error {
	var idle sync.WaitGroup
	p.mu.Lock()
	p.closeLocked(&idle)
	p.mu.Unlock()
	p.halt()
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
	}
	s := p.Stats()
	if s.Count == 0 {
		return nil
	}
	return fmt.Errorf("pool: close: resources are left: %w (lent %d, creating %d, destroying %d)",
		ctx.Err(), s.Lent, s.Creating, s.Destroying)
}

// CloseUnused begins Close if nothing is lent, nobody waits, and nothing was lent or came back
// since Stats.Moves had the value moves. It reports whether the pool is closed. It does not wait until the
// resources are destroyed; CloseContext does.
//
// With CloseUnused an owner drains the pool while some borrowers hold no resource now, but must
// still be able to acquire one. The owner counts such borrowers: each counts from before it gives
// its resource back until it has another resource. If the owner reads moves, then a count of 0, and
// CloseUnused succeeds, no such borrower is left: a borrower that had its resource at the count has
// changed Moves since, or still has the resource.
func (p *Pool[T]) CloseUnused(moves uint64) bool {
	p.mu.Lock()
	unused := p.lentLocked() == 0 && p.queue.n == 0 && p.alone.n == 0 && movesOf(p.acquires, 0) == moves
	if unused {
		p.closeLocked(new(sync.WaitGroup))
	}
	closed := p.mode&modeClosed != 0
	p.mu.Unlock()
	if unused {
		p.halt()
	}
	return closed
}

func (p *Pool[T]) closeLocked(idle *sync.WaitGroup) {
	if p.mode&modeClosed != 0 {
		return
	}
	p.nowLocked()
	p.mode |= modeClosed
	p.generation++
	p.failAllLocked(func(w *waiter[T]) error { return p.acquireErrorLocked(ErrClosed, w.start.Load()) })
	for p.idle.n > 0 {
		r := p.idle.popOldest()
		idle.Add(1)
		r.closer = idle
		p.retireLocked(r, ReasonClosed)
	}
	for _, t := range []*time.Timer{p.sweepTimer, p.starvation.timer, p.outage.timer} {
		if t != nil {
			t.Stop()
		}
	}
	if p.expireTimer != nil && p.following.empty() { // AcquireTimeout goes on for followers
		p.expireTimer.Stop()
	}
	p.balanceLocked()
}

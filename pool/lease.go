package pool

import "time"

// Lease is the right to use one resource until Release or Discard. It is a
// small value, to be copied freely; all copies are the same lease. The zero
// Lease holds nothing.
//
// A lease carries the number of its lending. So a lease that is given back twice, by
// mistake or by two goroutines at once, is recognised even if another borrower has the
// resource by then.
type Lease[T any] struct {
	r     *resource[T]
	stamp uint64
}

// Value gives the resource. It must not be used after the lease has been
// given back: another borrower may have it. On the zero Lease it is T's zero
// value.
func (l Lease[T]) Value() T {
	if l.r == nil {
		var zero T
		return zero
	}
	return l.r.value
}

// Waited is how long the acquirer has waited for the resource: 0 if a resource was idle. Waited must
// not be called after the lease has been given back.
func (l Lease[T]) Waited() time.Duration {
	if l.r == nil || l.r.w == nil {
		return 0
	}
	return time.Duration(l.r.w.waited)
}

// IsZero reports whether l is the zero Lease.
func (l Lease[T]) IsZero() bool { return l.r == nil }

// Valid reports whether the lease has not been given back yet.
func (l Lease[T]) Valid() bool {
	if l.r == nil {
		return false
	}
	p := l.r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.r.stamp == l.stamp
}

// Release gives the resource back: to the acquirer that has waited longest,
// or to be idle. It runs BeforeRelease first. Followers that have not ended
// go back to the queue. Its only error is ErrStaleLease.
func (l Lease[T]) Release() error {
	r := l.r
	if r == nil {
		return ErrStaleLease
	}
	p := r.pool
	p.lock()
	if r.stamp != l.stamp {
		p.mu.Unlock()
		return ErrStaleLease
	}
	r.stamp++
	if w := r.w; w != nil {
		r.w = nil
		p.recycleLocked(w)
	}
	if p.target != 0 {
		p.admission.hold.add(r.heldLocked(p.clock.Coarse()))
	}
	if !p.plainRelease || r.probe|r.leads != 0 { // | : one branch for both
		p.returnAllLocked(r)
		p.mu.Unlock()
		p.releaseSlow(r)
		return nil
	}
	w := p.putLocked(r)
	p.mu.Unlock()
	if w != nil {
		w.wake()
	}
	return nil
}

// heldLocked is how long one acquirer had r, or one of those that shared a pipeline.
func (r *resource[T]) heldLocked(now int64) int64 {
	held := now - r.lentAt
	if r.served != 0 { // a division takes long
		held /= r.served + 1
		r.served = 0
	}
	return held
}

// releaseSlow takes r back if there is a hook or a breaker to ask, or followers were forgotten.
func (p *Pool[T]) releaseSlow(r *resource[T]) {
	var err error
	if p.cfg.BeforeRelease != nil {
		err = p.beforeRelease(r)
	}
	p.finishRelease(r, err)
}

// finishRelease takes r back with the outcome of BeforeRelease.
func (p *Pool[T]) finishRelease(r *resource[T], err error) {
	var v verdict
	// Deferred, because the Strategy is foreign code and may end the
	// goroutine.
	defer func() {
		p.takeBack(r, err, v)
		p.report("BeforeRelease", err)
	}()
	v = p.judgeRelease(r, err)
}

func (p *Pool[T]) takeBack(r *resource[T], err error, v verdict) {
	p.mu.Lock()
	p.applyLocked(v)
	var w *waiter[T]
	if err != nil {
		p.retireLocked(r, ReasonBeforeRelease)
	} else {
		w = p.putLocked(r)
	}
	if err != nil || p.mode != 0 || v.next != v.from {
		p.balanceLocked()
	}
	p.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

// Discard gives a broken resource back: the pool destroys it. BeforeRelease is not called, and the
// circuit breaker does not count the release. The only error of Discard is ErrStaleLease.
func (l Lease[T]) Discard() error {
	r := l.r
	if r == nil {
		return ErrStaleLease
	}
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.stamp != l.stamp {
		return ErrStaleLease
	}
	p.returnAllLocked(r)
	if w := r.w; w != nil {
		r.w = nil
		p.recycleLocked(w)
	}
	p.endProbeLocked(r)
	p.retireLocked(r, ReasonDiscarded)
	p.balanceLocked()
	return nil
}

package pool

import "context"

// How an acquirer leaves that has got no resource, and with which error.

// leave ends attempt t after ctx is done or AcquireTimeout is over, and returns its error.
func (p *Pool[T]) leave(ctx context.Context, w *waiter[T], t *ticket) error {
	if p.abandon(w, t) {
		return ErrServed
	}
	return p.refuseGone(ctx, t)
}

// abandon withdraws w. If w has a resource already, abandon passes the resource on. served: Served came first,
// and the acquirer must return ErrServed. w is not recycled: a send on w.ch may still be on the way.
func (p *Pool[T]) abandon(w *waiter[T], t *ticket) (served bool) {
	waited := p.since() - t.start
	p.mu.Lock()
	defer p.mu.Unlock()
	if served = w.state == stateDelivered && w.err == ErrServed; served {
		p.count.pipelined++
		waited = w.waited
	}
	p.waits.record(waited)
	switch w.state {
	case stateDelivered:
		if r := w.r; r != nil {
			p.count.revoked++
			r.w = nil // passOnLocked must not recycle w
			p.passOnLocked(r)
		}
	case stateQueued, stateReserved, stateFollowing:
		p.removeLocked(w)
		p.leaveLocked(t.seq)
	}
	w.state = stateGone
	return served
}

// refuseGone returns the error of attempt t after abandon.
func (p *Pool[T]) refuseGone(ctx context.Context, t *ticket) error {
	if ctx.Err() == nil {
		return p.refuseTimeout(t)
	}
	return p.refuseDone(ctx, t.start, t.refusal)
}

// leaveLocked ends the attempt with number seq, which has no resource. If that attempt was the breaker's
// probe, another attempt may become the probe.
func (p *Pool[T]) leaveLocked(seq uint64) {
	if seq == p.probe && p.probe != 0 {
		p.probe = 0
		p.balanceLocked()
	}
}

// refuseDone returns the error of an attempt whose context is done. If the context's cause is ErrTimeout, the attempt is
// one that goes on, and its caller has set what is left of AcquireTimeout. start, refusal: of its ticket.
func (p *Pool[T]) refuseDone(ctx context.Context, start int64, refusal error) error {
	reason, cause := ctx.Err(), context.Cause(ctx)
	switch cause {
	case reason:
		cause = nil
	case ErrTimeout:
		reason, cause = ErrTimeout, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if reason == ErrTimeout {
		p.count.timeouts++
	} else {
		p.count.cancelled++
	}
	err := p.acquireErrorLocked(reason, start)
	err.Cause, err.Refusal = cause, refusal
	return err
}

// refuseTimeout returns the error of an attempt that has waited for AcquireTimeout.
func (p *Pool[T]) refuseTimeout(t *ticket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.timeouts++
	err := p.acquireErrorLocked(ErrTimeout, t.start)
	err.Refusal = t.refusal
	return err
}

func (p *Pool[T]) acquireErrorLocked(reason error, start int64) *AcquireError {
	err := &AcquireError{
		Reason:        reason,
		Max:           p.max,
		Allowed:       p.serverAllowsLocked(),
		Idle:          p.idle.n,
		Active:        p.total - p.idle.n,
		Waiting:       p.queue.n,
		Creating:      p.creating,
		LastCreateErr: p.lastCreateErr,
	}
	if len(p.creations) > 0 {
		err.CreatingFor = p.sinceStart(p.creations[0].start)
	}
	if start != 0 {
		err.Waited = p.sinceStart(start)
	}
	return err
}

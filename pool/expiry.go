package pool

import "time"

// All waiters have the same timeout. So one timer serves the whole queue: it is set for the waiter that
// has waited longest. The timer is not stopped when the queue becomes empty: the stop would cost time in
// every hand-over. A timer that fires for an empty queue costs nearly nothing, once in a timeout.

func (p *Pool[T]) armExpiryLocked(d time.Duration) {
	p.expireArmed = true
	p.setTimerLocked(&p.expireTimer, d, p.expireLocked)
}

// armExpiryAgainLocked arms the timer for a waiter that came back into the queue. The waiter's
// earlier wait counts, so the timer may be set too late. The first in the queue is this waiter, or
// another waiter that came back.
func (p *Pool[T]) armExpiryAgainLocked() {
	if p.cfg.AcquireTimeout > 0 {
		p.armExpiryLocked(p.cfg.AcquireTimeout - p.sinceStart(p.queue.oldest().start.Load()))
	}
}

// expireLocked fails the waiters whose time is over.
func (p *Pool[T]) expireLocked() {
	p.expireArmed = false
	left := false
	for w := p.queue.oldest(); w != nil; w = p.queue.oldest() {
		start := w.start.Load()
		if start == 0 {
			// w has entered the queue, but its acquirer has not looked at the clock yet.
			start = p.nowLocked()
		}
		remaining := p.cfg.AcquireTimeout - p.sinceStart(start)
		if remaining > 0 {
			p.armExpiryLocked(remaining)
			break
		}
		p.queue.remove(w)
		p.count.timeouts++
		p.failLocked(w, p.acquireErrorLocked(ErrTimeout, start))
		left = true
	}
	if left {
		p.balanceLocked() // one of them may have been the breaker's probe
	}
}

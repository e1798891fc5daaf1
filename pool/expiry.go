package pool

import "time"

// All waiters have the same timeout. So one timer serves the whole queue and the followers: it is set for
// the waiter that has waited longest. The timer is not stopped when the queue becomes empty: the stop would
// cost time in every hand-over. A timer that fires for nobody costs nearly nothing, once in a timeout.

func (p *Pool[T]) armExpiryLocked(d time.Duration) {
	p.expireAt = later(p.nowLocked(), d)
	p.setTimerLocked(&p.expireTimer, d, p.expireLocked)
}

// armExpiryAgainLocked arms the timer for w, which came back into the queue. w's earlier wait counts, so the
// timer may be set too late. It is never set later: others who follow may have waited longer than w.
func (p *Pool[T]) armExpiryAgainLocked(w *waiter[T]) {
	if p.cfg.AcquireTimeout == 0 {
		return
	}
	if d := p.untilTimeoutLocked(w); p.expireAt == 0 || later(p.nowLocked(), d) < p.expireAt {
		p.armExpiryLocked(d)
	}
}

// untilTimeoutLocked is how long w may still wait.
func (p *Pool[T]) untilTimeoutLocked(w *waiter[T]) time.Duration {
	now := p.nowLocked()
	start := w.start.Load()
	if start == 0 {
		start = now // w has entered the queue, but its acquirer has not looked at the clock yet
	}
	return p.cfg.AcquireTimeout - time.Duration(now-start)
}

// expireLocked fails the waiters whose time is over.
func (p *Pool[T]) expireLocked() {
	p.expireAt = 0
	left, next := false, time.Duration(never)
	for _, q := range []*waitQueue[T]{&p.queue, &p.following} {
		for w := q.oldest(); w != nil; {
			after := q.after(w) // read before w leaves
			if d := p.untilTimeoutLocked(w); w.state == stateFollowing && w.works {
				// it does not wait for a resource
			} else if d <= 0 {
				p.removeLocked(w)
				p.count.timeouts++
				p.failLocked(w, p.acquireErrorLocked(ErrTimeout, w.start.Load()))
				left = true
			} else {
				next = min(next, d)
				if q == &p.queue {
					break // those behind w have more time
				}
			}
			w = after
		}
	}
	if next != never {
		p.armExpiryLocked(next)
	}
	if left {
		p.balanceLocked() // one of them may have been the breaker's probe
	}
}

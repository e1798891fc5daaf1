package pool

import "time"

// A server that is full takes no more resources than there are. While the pool has resources, a
// create that fails for this reason makes no acquirer fail: waiters get what comes back. Resources
// that are being created or destroyed count: one of them may have the server's last place. While
// somebody waits, the pool tries one more create once a second. One success ends this state.
//
// If the pool has no resource left, creates run one at a time, the first after a moment: if several
// come at once to the server's last place, the server may refuse them all (PostgreSQL counts those
// that it is about to refuse, and for a moment those that it has refused). A create that is refused
// alone has failed, unless a crowd was refused just before.

// probeFull is the time between two creates beyond what the server allows.
const probeFull = time.Second

// full describes a server that is full. The pool's lock protects it.
type full struct {
	on      bool
	allowed int   // how many existed when the server refused one more
	next    int64 // when the pool may try one more create
	crowd   int64 // when a create that was not alone was refused; 0: never
}

// liveLocked is how many resources are open, lent or not.
func (p *Pool[T]) liveLocked() int { return p.total - p.creating - p.destroying }

// refusedInCrowd reports whether c, which the server has refused, was not alone, or a crowd was refused just
// before. p.total still counts c.
func (p *Pool[T]) refusedInCrowd(c *creation[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.nowLocked(); c.othersExist || p.total > 1 {
		p.full.crowd = now
	} else if p.full.crowd == 0 || now >= later(p.full.crowd, probeFull) {
		return false
	}
	return true
}

// fullLocked notes that c has failed because the server is full.
func (p *Pool[T]) fullLocked(c *creation[T]) {
	after := probeFull
	if p.total == 0 {
		after = shortestPause
	}
	p.full.on, p.full.allowed, p.full.next = true, p.total-p.creating, later(p.nowLocked(), after)
	if c.alone && c.waits() { // AcquireNow does not wait for a release
		p.removeLocked(c.w)
		p.failLocked(c.w, ErrNoneNow)
	}
}

// allowedLocked is how many resources may exist: Max, or what the server allows.
func (p *Pool[T]) allowedLocked() int {
	switch {
	case !p.full.on:
		return p.max
	case p.nowLocked() >= p.full.next:
		return min(p.max, p.full.allowed+1)
	}
	return min(p.max, p.full.allowed)
}

// serverAllowsLocked is Stats.Allowed.
func (p *Pool[T]) serverAllowsLocked() int {
	if !p.full.on || p.total == 0 {
		return p.max
	}
	return min(p.max, max(1, p.full.allowed))
}

// probeFullLaterLocked sets the timer for the time when the pool may try one more create.
func (p *Pool[T]) probeFullLaterLocked() {
	if p.full.on && p.total < p.max && !p.queue.empty() && p.creating == 0 {
		now := p.nowLocked()
		p.balanceAtLocked(max(p.full.next, now+1), now)
	}
}

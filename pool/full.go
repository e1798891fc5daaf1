package pool

import "time"

// A server that is full takes no more resources than there are. While we have some, such a
// failed create fails nobody: who waits is served by what comes back. Those that are being
// created or destroyed count: one of them may be what the server has no more room beside. The
// pool asks for one more once a second, while somebody waits for it. One success ends that.
//
// Where none is left, creates go one at a time, the first after a moment: a server may refuse
// all of several that come at once to its last place (PostgreSQL counts those that it is about
// to refuse, and for a moment those that it has refused). One that is refused alone has failed,
// unless there was a crowd just before.

// probeFull is the time between two creates beyond what the server allows.
const probeFull = time.Second

// full is what is known of a server that is full. The pool's lock protects it.
type full struct {
	on      bool
	allowed int   // how many existed when it refused one more
	next    int64 // when one more may be asked for
	crowd   int64 // when one was refused that was not alone; 0: none was
}

// liveLocked is how many resources are open, lent or not.
func (p *Pool[T]) liveLocked() int { return p.total - p.creating - p.destroying }

// crowded reports whether c, which the server has refused and which still counts, was not alone
// there, or a crowd was refused just before.
func (p *Pool[T]) crowded(c *creation[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.nowLocked(); c.beside || p.total > 1 {
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
	if c.alone && c.waits() { // it must not wait for others
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

// probeFullLaterLocked sets the timer for the time when the server may be asked for one more.
func (p *Pool[T]) probeFullLaterLocked() {
	if p.full.on && p.total < p.max && !p.queue.empty() && p.creating == 0 {
		now := p.nowLocked()
		p.balanceAtLocked(max(p.full.next, now+1), now)
	}
}

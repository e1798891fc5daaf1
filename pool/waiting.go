package pool

import (
	"cmp"
	"slices"
	"time"
)

// Waiting is an acquirer in the queue, or one that follows.
type Waiting struct {
	Who   any       // the argument of AcquireAs; nil: there was none
	Since time.Time // when the acquirer began to wait
	// Until is when the wait ends without a resource, by its context or by AcquireTimeout; zero:
	// never.
	Until time.Time
	// Follows: another acquirer has taken it along; see Lease.TakeAlong.
	Follows bool
}

// glance is a copy of a waiter's data, made under the lock.
type glance struct {
	who          any
	start, until int64
	seq          uint64
	follows      bool
}

// Waiting returns the acquirers in the queue and those that follow, in the order in which they came.
func (p *Pool[T]) Waiting() []Waiting {
	queue := p.lookAtQueue()
	slices.SortFunc(queue, func(a, b glance) int { return cmp.Compare(a.seq, b.seq) })
	all := make([]Waiting, len(queue))
	for i, g := range queue {
		all[i] = p.waiting(g)
	}
	return all
}

// lookAtQueue copies the followers and the queue. It only copies: nobody gets a resource meanwhile.
func (p *Pool[T]) lookAtQueue() []glance {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := make([]glance, 0, p.following.n+p.queue.n)
	for _, q := range []*waitQueue[T]{&p.following, &p.queue} {
		for w := q.oldest(); w != nil; w = q.after(w) {
			queue = append(queue, glance{w.who, w.start.Load(), w.until.Load(), w.seq, w.state == stateFollowing})
		}
	}
	return queue
}

func (p *Pool[T]) waiting(g glance) Waiting {
	if g.start == 0 {
		g.start = p.since() // the acquirer is about to look at the clock
	}
	if d := p.cfg.AcquireTimeout; d > 0 {
		if end := later(g.start, d); g.until == 0 || end < g.until {
			g.until = end
		}
	}
	w := Waiting{Who: g.who, Since: p.clock.Time(g.start), Follows: g.follows}
	if g.until != 0 {
		w.Until = p.clock.Time(g.until)
	}
	return w
}

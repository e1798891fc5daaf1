package pool

import "time"

// Waiting is an acquirer in the queue.
type Waiting struct {
	Who   any       // the argument of AcquireAs; nil: there was none
	Since time.Time // when the acquirer began to wait
	// Until is when the wait ends without a resource, by its context or by AcquireTimeout; zero:
	// never.
	Until time.Time
}

const (
	// lookAtOnce is how many waiters Waiting looks at without a pause. Each may be a miss
	// of the processor's caches.
	lookAtOnce = 200
	// mostLooks bounds Waiting if waiters that it has just seen leave the queue again and again.
	mostLooks = 10_000
)

// Waiting returns the acquirers in the queue, in their order. It reads the queue in parts of 200
// acquirers, and releases the lock between two parts. So the result may lack some acquirers that come
// or leave during the call.
func (p *Pool[T]) Waiting() (all []Waiting) {
	var part [lookAtOnce]glance
	var c cursor[T]
	for range mostLooks {
		n, more := p.lookAtQueue(part[:], &c)
		for _, g := range part[:n] {
			all = append(all, p.waiting(g))
		}
		if !more {
			break
		}
	}
	return all
}

// glance is a copy of a waiter's data, made under the lock.
type glance struct {
	who          any
	start, until int64
}

// cursor is the position of Waiting in the queue. at: the last waiter that Waiting looked at. seq: at.seq
// at that time; at may have left the queue since, and may be in the queue again with another seq. seen:
// the highest seq that Waiting has copied.
type cursor[T any] struct {
	at        *waiter[T]
	seq, seen uint64
}

// lookAtQueue copies waiters into part. It begins after the last waiter that the last look has
// copied. If that waiter has left the queue, it begins at the oldest, and passes over waiters that
// were copied.
func (p *Pool[T]) lookAtQueue(part []glance, c *cursor[T]) (n int, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.queue.oldest()
	if c.at != nil && c.at.state == stateQueued && c.at.seq == c.seq {
		w = p.queue.after(c.at)
	}
	for range part {
		if w == nil {
			return n, false
		}
		if w.seq > c.seen {
			part[n] = glance{w.who, w.start.Load(), w.until.Load()}
			n++
			c.seen = w.seq
		}
		c.at, c.seq = w, w.seq
		w = p.queue.after(w)
	}
	return n, true
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
	w := Waiting{Who: g.who, Since: p.clock.Time(g.start)}
	if g.until != 0 {
		w.Until = p.clock.Time(g.until)
	}
	return w
}

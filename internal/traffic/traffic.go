// Package traffic remembers when connections were asked for and for how long they were held, and says how that
// would have gone with fewer connections.
package traffic

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Kept is how many lendings are remembered: 256 KiB.
const Kept = 1 << 14

// Lending is one use of a connection. Times are in nanoseconds.
type Lending struct {
	At   int64 // when somebody asked for the connection
	Held int64
}

// Ring remembers the last lendings. The zero Ring is empty.
type Ring struct {
	mu      sync.Mutex // protects following fields
	ring    []Lending  // grows up to Kept
	next    int        // the oldest in a full ring
	skipped []skip     // in the order of time
}

// skip is a number of lendings that are not in the ring.
type skip struct {
	at int64
	n  uint64
}

// mostSkips bounds the memory of what was skipped: one entry for each second.
const mostSkips = 64

// Add remembers a lending. It allocates only while the ring grows.
func (r *Ring) Add(l Lending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < Kept {
		r.ring = append(r.ring, l)
		return
	}
	r.ring[r.next] = l
	r.next = (r.next + 1) % Kept
}

// Skip counts n lendings that came at a time and were not timed one by one.
func (r *Ring) Skip(at int64, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.skipped) - 1; last >= 0 && at-r.skipped[last].at < int64(time.Second) {
		r.skipped[last].n += n
		return
	}
	if len(r.skipped) == mostSkips {
		r.skipped = slices.Delete(r.skipped, 0, 1)
	}
	r.skipped = append(r.skipped, skip{at, n})
}

// Record is a copy of what a Ring remembers.
type Record struct {
	lendings []Lending     // in the order in which they were asked for
	For      time.Duration // from the first to the end of the last
	Skipped  uint64        // lendings in this time that are not in the record
}

// Record returns what r remembers.
func (r *Ring) Record() *Record {
	r.mu.Lock()
	c := &Record{lendings: slices.Clone(r.ring)}
	skipped := slices.Clone(r.skipped)
	r.mu.Unlock()
	if len(c.lendings) == 0 {
		for _, s := range skipped {
			c.Skipped += s.n
		}
		return c
	}
	slices.SortFunc(c.lendings, func(a, b Lending) int { return cmp.Compare(a.At, b.At) })
	first, end := c.lendings[0].At, int64(0)
	for _, l := range c.lendings {
		end = max(end, l.At+l.Held)
	}
	c.For = time.Duration(end - first)
	for _, s := range skipped {
		if s.at >= first-int64(time.Second) {
			c.Skipped += s.n
		}
	}
	return c
}

// Lendings is how many the record has.
func (c *Record) Lendings() int { return len(c.lendings) }

// Waits are how long those in a record wait for their connections, in rising order.
type Waits []int64

// Quantile is the wait that the part q does not exceed.
func (w Waits) Quantile(q float64) time.Duration {
	if len(w) == 0 {
		return 0
	}
	return time.Duration(w[min(len(w)-1, int(q*float64(len(w))))])
}

// Replay serves the record with n connections, in the order in which they were asked for.
func (c *Record) Replay(n int) Waits {
	free := make(heap, 0, n) // when each connection that was used becomes free
	waits := make(Waits, len(c.lendings))
	for i, l := range c.lendings {
		begins := l.At
		if len(free) == n {
			begins = max(begins, free[0])
			waits[i] = begins - l.At
			free.replaceFirst(begins + l.Held)
			continue
		}
		free.push(l.At + l.Held)
	}
	slices.Sort(waits)
	return waits
}

// Needed is with how many connections nobody would have waited.
func (c *Record) Needed() (most int) {
	ends := make(heap, 0, 64) // of the lendings that run
	for _, l := range c.lendings {
		for len(ends) > 0 && ends[0] <= l.At {
			ends.pop()
		}
		ends.push(l.At + l.Held)
		most = max(most, len(ends))
	}
	return most
}

// heap has the smallest value first.
type heap []int64

func (h *heap) push(v int64) {
	*h = append(*h, v)
	s := *h
	for i := len(s) - 1; i > 0 && s[(i-1)/2] > s[i]; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *heap) pop() {
	s := *h
	last := s[len(s)-1]
	*h = s[:len(s)-1]
	if len(*h) > 0 {
		h.replaceFirst(last)
	}
}

func (h *heap) replaceFirst(v int64) {
	s := *h
	s[0] = v
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s); child++ {
			if s[child] < s[least] {
				least = child
			}
		}
		if least == i {
			return
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

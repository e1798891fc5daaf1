package waitgraph

import (
	"slices"
	"sync"
)

// Queue is the waiters of the moment, in the order in which they came. The zero value is empty. A
// Queue is safe for concurrent use.
type Queue[W comparable] struct {
	mu     sync.Mutex // protects following fields
	last   uint64     // the number of the last waiter that came
	queued []Queued[W]
}

// Queued is a waiter. Its Number is greater than the Numbers of all earlier waiters.
type Queued[W comparable] struct {
	Number uint64
	Waiter W
}

// Join adds w.
func (q *Queue[W]) Join(w W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	q.queued = append(q.queued, Queued[W]{q.last, w})
}

// Leave removes w.
func (q *Queue[W]) Leave(w W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued = slices.DeleteFunc(q.queued, func(other Queued[W]) bool { return other.Waiter == w })
}

// All returns the present waiters.
func (q *Queue[W]) All() []Queued[W] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.queued)
}

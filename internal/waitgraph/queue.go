package waitgraph

import (
	"slices"
	"sync"
)

// Queue is those who wait now, in the order in which they came. The zero value is empty.
// A Queue is safe for concurrent use.
type Queue[W comparable] struct {
	mu     sync.Mutex // protects following fields
	last   uint64     // the number of the last one that came
	queued []Queued[W]
}

// Queued is one who waits. Number is greater than those of all who came before.
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

// All returns those who wait at this moment.
func (q *Queue[W]) All() []Queued[W] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.queued)
}

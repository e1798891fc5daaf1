package connpool

import (
	"slices"
	"sync"
	"sync/atomic"
)

// registry is the members. A member begins (Begin), is listed while it is ready (Add,
// Remove), and ends (End). The zero value has none. It is safe for concurrent use.
type registry[M comparable] struct {
	open   atomic.Int64 // members between Begin and End
	closed atomic.Bool
	once   sync.Once // calls last

	mu    sync.Mutex          // serialises changes of the following fields
	last  func()              // set before closed
	ready atomic.Pointer[[]M] // a new slice for each change
}

// Begin counts a member that is being made.
func (r *registry[M]) Begin() { r.open.Add(1) }

// Add lists a member that is ready.
func (r *registry[M]) Add(m M) {
	r.change(func(all []M) []M { return append(all, m) })
}

// Remove takes a member off the list.
func (r *registry[M]) Remove(m M) {
	r.change(func(all []M) []M {
		return slices.DeleteFunc(all, func(other M) bool { return other == m })
	})
}

func (r *registry[M]) change(how func([]M) []M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := how(slices.Clone(r.Ready()))
	r.ready.Store(&all)
}

// Ready is the listed members, in the order in which they were added. The caller does not
// change the slice.
func (r *registry[M]) Ready() []M {
	if all := r.ready.Load(); all != nil {
		return *all
	}
	return nil
}

// End counts a member out, also one that was never ready.
func (r *registry[M]) End() {
	if r.open.Add(-1) == 0 {
		r.finish()
	}
}

// Empty reports whether every member that has begun has ended.
func (r *registry[M]) Empty() bool { return r.open.Load() == 0 }

// Close calls the function last once, as soon as there are no members: now, or after the final
// End. No member begins any more. A second call of Close does not change the function.
func (r *registry[M]) Close(last func()) {
	r.mu.Lock()
	if r.last == nil {
		r.last = last
		r.closed.Store(true)
	}
	r.mu.Unlock()
	r.finish()
}

// finish: End and Close may both find that nothing is left; last is called once.
func (r *registry[M]) finish() {
	if r.closed.Load() && r.Empty() {
		r.once.Do(r.last)
	}
}

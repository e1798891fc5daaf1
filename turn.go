package pooldriver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// turn is a lock that can be waited for with a context, and is handed over in
// the order of arrival. It is held while the driver works, never while the
// program's code runs. The zero value is free.
type turn struct {
	// state is turnFree, turnTaken, or turnWanted: taken, and others wait. It
	// leaves turnWanted only under mu, so whoever finds turnFree overtakes
	// nobody.
	state   atomic.Int32
	mu      sync.Mutex // protects following fields
	waiting []chan struct{}
}

const (
	turnFree int32 = iota
	turnTaken
	turnWanted
)

// try takes the turn if it is free.
func (t *turn) try() bool { return t.state.CompareAndSwap(turnFree, turnTaken) }

// take waits for the turn, or for the end of ctx, whose error it returns.
func (t *turn) take(ctx context.Context) error {
	if t.try() {
		return nil
	}
	return t.wait(ctx)
}

// wait is take where the turn is not free, so that take is inlined.
func (t *turn) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.try() || t.state.Swap(turnWanted) == turnFree {
		// Given back meanwhile. Nobody waits: they would have had it.
		t.state.Store(turnTaken)
		t.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	t.waiting = append(t.waiting, granted)
	t.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, granted)
	if i < 0 { // granted at the same moment
		t.mu.Unlock()
		t.pass()
		return ctx.Err()
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if len(t.waiting) == 0 {
		t.state.Store(turnTaken)
	}
	t.mu.Unlock()
	return ctx.Err()
}

// pass gives the turn to the first that waits, or frees it.
func (t *turn) pass() {
	if !t.state.CompareAndSwap(turnTaken, turnFree) {
		t.grant()
	}
}

// grant is pass where others wait, so that pass is inlined.
func (t *turn) grant() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 { // the last one has just left
		t.state.Store(turnFree)
		return
	}
	first := t.waiting[0]
	t.waiting = slices.Delete(t.waiting, 0, 1)
	if len(t.waiting) == 0 {
		t.state.Store(turnTaken)
	}
	close(first)
}

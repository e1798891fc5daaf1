package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
)

// turns says how many sandboxes of a connector are open at a time.
var turns turnstile

type turnstile struct {
	mu  sync.Mutex // protects following fields, and those of gates and waiters
	all map[beneath.Beneath]*gate
}

// gate lets the sandboxes of one connector in, in the order in which they come.
type gate struct {
	together bool // Together was called
	inside   map[*waiter]bool
	queue    []*waiter
}

// waiter is one test. It waits on a mutex that others unlock: tests may run in different bubbles of
// testing/synctest, and a channel would belong to one of them.
type waiter struct {
	visitor
	turn   sync.Mutex
	gaveUp bool
}

// visitor is a test that wants a sandbox.
type visitor struct {
	test string
	// serial: no test that waits in t.Parallel goes on before this one has ended.
	serial bool
	// paused reports whether it has called t.Parallel after it has come.
	paused func() bool
}

func visitorOf(t testing.TB) visitor {
	before := isParallel(t)
	return visitor{test: t.Name(), serial: isSerial(t), paused: func() bool { return !before && isParallel(t) }}
}

func (w *turnstile) gateLocked(of beneath.Beneath) *gate {
	if w.all == nil {
		w.all = map[beneath.Beneath]*gate{}
	}
	g := w.all[of]
	if g == nil {
		g = &gate{inside: map[*waiter]bool{}}
		w.all[of] = g
	}
	return g
}

// wait waits for the turn of a test. leave ends it.
func (w *turnstile) wait(ctx context.Context, of beneath.Beneath, who visitor) (leave func(), err error) {
	me := &waiter{visitor: who}
	w.mu.Lock()
	g := w.gateLocked(of)
	if len(g.inside) < atOnce(of, g.together) {
		g.inside[me] = true
		w.mu.Unlock()
		return func() { w.leave(of, g, me) }, nil
	}
	if me.serial && g.allPaused() {
		defer w.mu.Unlock()
		return nil, fmt.Errorf("%s has called t.Parallel after sandbox.DB: it keeps its sandbox while it waits for this test to end, and no other sandbox may be open meanwhile; call t.Parallel before sandbox.DB", g.someone())
	}
	g.queue = append(g.queue, me)
	me.turn.Lock()
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { w.giveUp(g, me) })
	me.turn.Lock() // until leave or giveUp unlocks it
	stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if me.gaveUp {
		return nil, fmt.Errorf("other tests have all sandboxes that may be open at a time on this connector (%d), among them %s: %w", len(g.inside), g.someone(), ctx.Err())
	}
	return func() { w.leave(of, g, me) }, nil
}

// giveUp ends the wait of a test, unless its turn has come.
func (w *turnstile) giveUp(g *gate, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(g.queue, me); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		me.gaveUp = true
		me.turn.Unlock()
	}
}

// leave lets the next test in.
func (w *turnstile) leave(of beneath.Beneath, g *gate, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(g.inside, me)
	if len(g.queue) > 0 {
		next := g.queue[0]
		g.queue = g.queue[1:]
		g.inside[next] = true
		next.turn.Unlock()
	} else if len(g.inside) == 0 && !g.together {
		delete(w.all, of)
	}
}

// allPaused reports whether all tests inside have called t.Parallel. If a serial test asks, these tests wait in
// t.Parallel: a test that has gone on from t.Parallel has ended by then.
func (g *gate) allPaused() bool {
	for me := range g.inside {
		if !me.paused() {
			return false
		}
	}
	return true
}

// someone names a test that is inside.
func (g *gate) someone() string {
	for me := range maps.Keys(g.inside) {
		return me.test
	}
	return "none"
}

// atOnce is how many sandboxes of a connector are open at a time. One connection is left for the
// statements that go to the database itself: a test may need one before its sandbox ends.
func atOnce(of beneath.Beneath, together bool) int {
	judge, ok := of.Config().Dialect.(dialects.SandboxJudge)
	if !together && (!ok || judge.SandboxesAlone()) {
		return 1
	}
	return max(1, of.Config().MaxConns-1)
}

// together lets sandboxes run at the same time.
func (w *turnstile) together(of beneath.Beneath) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateLocked(of).together = true
}

// shared reports whether together was called.
func (w *turnstile) shared(of beneath.Beneath) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gateLocked(of).together
}

package sandbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
)

// turns lets sandboxes on one connector run one after the other.
var turns turnstile

type turnstile struct {
	mu   sync.Mutex // protects following fields
	held map[beneath.Beneath]chan struct{}
	open map[beneath.Beneath]bool // Together was called
	who  map[beneath.Beneath]string
}

// wait waits for the turn of a test. leave ends it.
func (w *turnstile) wait(ctx context.Context, of beneath.Beneath, test string) (leave func(), err error) {
	w.mu.Lock()
	if w.held == nil {
		w.held, w.open, w.who = map[beneath.Beneath]chan struct{}{}, map[beneath.Beneath]bool{}, map[beneath.Beneath]string{}
	}
	if w.open[of] || !alone(of) {
		w.mu.Unlock()
		return func() {}, nil
	}
	turn := w.held[of]
	if turn == nil {
		turn = make(chan struct{}, 1)
		w.held[of] = turn
	}
	w.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return nil, fmt.Errorf("%s still has the only sandbox of this database, where sandboxes run one after the other: %w", w.who[of], ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.who[of] = test
	return func() { <-turn }, nil
}

// together lets sandboxes run at the same time.
func (w *turnstile) together(of beneath.Beneath) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.held, w.open, w.who = map[beneath.Beneath]chan struct{}{}, map[beneath.Beneath]bool{}, map[beneath.Beneath]string{}
	}
	w.open[of] = true
}

// shared reports whether together was called.
func (w *turnstile) shared(of beneath.Beneath) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[of]
}

// alone reports whether sandboxes run one after the other by default.
func alone(of beneath.Beneath) bool {
	judge, ok := of.Dialect().(dialects.SandboxJudge)
	return !ok || judge.SandboxesAlone()
}

package testbed

import (
	"context"
	"sync"
	"testing"
	"time"
)

// samplePause is the time between two looks at the server. With looks every 2 ms a slow
// machine is so busy that the looks themselves make the pool late.
const samplePause = 10 * time.Millisecond

// Peak is what a [Watch] has seen.
type Peak struct {
	Backends int // the most connections at one look
	Killers  int // the most connections that kill a cancelled MySQL statement at one look
	Samples  int // looks that were answered
	Missed   int // looks that were not, as when the server restarts
}

// Watch looks at the account's connections every few milliseconds.
type Watch struct {
	of   Account
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	peak Peak
}

// Watch begins to watch. It ends with [Watch.Stop], or with the test.
func (a Account) Watch(t testing.TB) *Watch {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &Watch{of: a, stop: stop, done: make(chan struct{})}
	// The first look is taken here: whatever the test does next is watched.
	w.Look(ctx)
	if w.Peak().Missed > 0 {
		t.Fatal("testbed: the server does not tell its connections")
	}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(samplePause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.Look(ctx)
			}
		}
	}()
	t.Cleanup(func() { w.Stop() })
	return w
}

// Look looks now, for who must not depend on how soon a busy machine does.
func (w *Watch) Look(ctx context.Context) {
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	counted, _, kill, err := w.of.backends(attempt)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			w.peak.Missed++
		}
		return
	}
	w.peak.Samples++
	w.peak.Backends = max(w.peak.Backends, counted)
	w.peak.Killers = max(w.peak.Killers, kill)
}

// Peak returns what was seen so far.
func (w *Watch) Peak() Peak {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak
}

// Stop ends the watch and returns what it saw. It may be called again.
func (w *Watch) Stop() Peak {
	w.stop()
	<-w.done
	return w.Peak()
}

// Package pause waits, and says for how long.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It reports whether d has passed.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Longer is the pause after one more failure: twice the last pause, within bounds.
func Longer(last, shortest, longest time.Duration) time.Duration {
	if last > longest/2 {
		return longest
	}
	return min(max(2*last, shortest), longest)
}

// Tries says when something may be tried again that has failed. The zero value has not failed.
type Tries struct {
	pause time.Duration // the last one
	next  time.Time
}

// Failed notes a failed try. If several tries fail at the same time, only the first lengthens the pause.
func (t *Tries) Failed(shortest, longest time.Duration) {
	if now := time.Now(); !now.Before(t.next) {
		t.pause = Longer(t.pause, shortest, longest)
		t.next = now.Add(t.pause)
	}
}

// Any reports whether a try has failed.
func (t *Tries) Any() bool { return t.pause > 0 }

// Next is when the next try may be made.
func (t *Tries) Next() time.Time { return t.next }

// Package repeated bounds how often a log says the same thing, and lets no panic of its handler end
// the process.
package repeated

import (
	"sync"
	"time"
)

// Pause is the time between two equal lines.
const Pause = 10 * time.Second

// Line is one thing that a log may say. The zero value was not said yet. A Line is safe for
// concurrent use.
type Line struct {
	mu     sync.Mutex // protects following fields
	said   time.Time
	silent int
}

// Due reports whether the log must say the line now: at the first time, and then at most once in
// each Pause. since is how often the line was not said since the last time.
func (l *Line) Due() (since int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	// A time before said comes from a bubble of testing/synctest.
	if ago := now.Sub(l.said); !l.said.IsZero() && ago >= 0 && ago < Pause {
		l.silent++
		return 0, false
	}
	since, l.said, l.silent = l.silent, now, 0
	return since, true
}

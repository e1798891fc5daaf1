// Package repeated keeps a log from saying the same thing again and again, and from ending the
// process.
package repeated

import (
	"sync"
	"time"
)

// Pause is the time between two lines that say the same.
const Pause = 10 * time.Second

// Line is one thing that a log may say. The zero value has not been said. A Line is safe for
// concurrent use.
type Line struct {
	mu     sync.Mutex // protects following fields
	said   time.Time
	silent int
}

// Due reports whether the log is to say it now: at the first time, and then at most once in
// each Pause. since is how often it was not said since the last time.
func (l *Line) Due() (since int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	// A time before said is that of a bubble of testing/synctest.
	if ago := now.Sub(l.said); !l.said.IsZero() && ago >= 0 && ago < Pause {
		l.silent++
		return 0, false
	}
	since, l.said, l.silent = l.silent, now, 0
	return since, true
}

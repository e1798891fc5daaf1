// Package repeated bounds how often a log writes the same line. It also keeps a panic of the log's
// handler from ending the process.
package repeated

import (
	"sync"
	"time"
)

// Pause is the time between two equal lines.
const Pause = 10 * time.Second

// Line is a line that a log may write repeatedly. The zero value is a line that was not written
// yet. A Line is safe for concurrent use.
type Line struct {
	mu     sync.Mutex // protects following fields
	said   time.Time
	silent int
}

// Due reports whether the log must write the line now: the first time, and then at most once in
// each Pause. since is the number of lines left out since the last line that was written.
func (l *Line) Due() (since int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	// A negative ago comes from a bubble of testing/synctest.
	if ago := now.Sub(l.said); !l.said.IsZero() && ago >= 0 && ago < Pause {
		l.silent++
		return 0, false
	}
	since, l.said, l.silent = l.silent, now, 0
	return since, true
}

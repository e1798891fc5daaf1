package floor

import (
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Ages knows how old positions of the primary are, by the clocks of this machine: a replica that has reached a position has
// everything that was flushed before the primary was asked for it. The methods may be called at the same time.
type Ages struct {
	mu   sync.Mutex // protects following fields
	last [8]sample  // a ring: the primary is asked four times in the lag that is allowed
	next int
}

type sample struct {
	position string
	asked    time.Time
}

// Add adds a position that the primary was asked for at that time.
func (a *Ages) Add(position string, asked time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[a.next] = sample{position, asked}
	a.next = (a.next + 1) % len(a.last)
}

// of returns when the newest position that replayed has reached was asked for; zero: there is none.
func (a *Ages) of(p dialects.Positions, replayed string) (newest time.Time) {
	a.mu.Lock()
	samples := a.last
	a.mu.Unlock()
	for _, s := range samples {
		if s.asked.After(newest) && p.Reached(s.position, replayed) {
			newest = s.asked
		}
	}
	return newest
}

// age is how long ago t was. While the machine sleeps only its wall clock goes on, and that one may be set back.
func age(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

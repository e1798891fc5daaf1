// Package hosts chooses among the servers that one DSN names.
//
// A List remembers of each server how it did lately, and nothing of where its
// name led: a name is resolved anew by each dial. A Walk tries the servers of a
// list, one after the other, until one will do.
//
// libpq walks a list from its beginning each time ("Specifying Multiple Hosts"
// in its manual), and so waits each time for a dead server that stands first. A
// pool dials often, hence the memory. pgjdbc keeps one, too (hostRecheckSeconds),
// but skips for its time who has failed; here a server that is paused is tried
// after the others, so that no dial fails without having asked everybody.
package hosts

import (
	"context"
	"sync"
	"time"
)

const (
	// firstPause is how long a server that could not be reached is passed over
	// by others, and lastPause what that doubles up to, failure by failure.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// firstRest is how long the next walk waits after one that found nobody, and
	// lastRest what that doubles up to, walk by walk. While no primary is there,
	// a pool that many wait for would otherwise keep the standby busy with logins
	// that is to become one. It delays finding it by as much.
	firstRest = 10 * time.Millisecond
	lastRest  = 100 * time.Millisecond
	// memory is how long a server that answered and would not do is asked after
	// those that may. It is a matter of order only.
	memory = 10 * time.Second
)

// List is the servers of a DSN, in its order. It is safe for concurrent use.
type List struct {
	names []string

	mu     sync.Mutex // protects following fields
	hosts  []state
	vain   int       // walks in a row that found nobody
	rested time.Time // until then the next one waits
}

// state is how a server did.
type state struct {
	failures int       // in a row: it could not be reached
	paused   time.Time // until then
	trial    bool      // somebody tries it, after a pause
	behind   time.Time // it would not do, and is asked after others until then
}

// New makes a list. The names are for errors.
func New(names ...string) *List {
	return &List{names: names, hosts: make([]state, len(names))}
}

// Len counts the servers.
func (l *List) Len() int { return len(l.names) }

// choice is a server to try next.
type choice struct {
	host    int
	suspect bool // it could not be reached the last time
	paused  bool // and its pause is not over, or somebody else is trying it
}

// choose returns the best of those not tried yet: in order of the DSN those that
// may do, then those that would not lately, then those that are paused. One
// whose pause is over is tried by one dial alone; that dial has to call reached,
// refused, failed or untried.
func (l *List) choose(tried []bool) (choice, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	best, rank := choice{host: -1}, 3
	for i, h := range l.hosts {
		if tried[i] {
			continue
		}
		c, r := choice{host: i, suspect: h.failures > 0}, 0
		switch {
		case c.suspect && (h.trial || now.Before(h.paused)):
			c.paused, r = true, 2
		case now.Before(h.behind):
			r = 1
		}
		if r < rank {
			best, rank = c, r
		}
	}
	if best.host < 0 {
		return best, false
	}
	if best.suspect && !best.paused {
		l.hosts[best.host].trial = true
	}
	return best, true
}

// more reports whether there is a server to try that is not paused.
func (l *List) more(tried []bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i, h := range l.hosts {
		if !tried[i] && (h.failures == 0 || !h.trial && !now.Before(h.paused)) {
			return true
		}
	}
	return false
}

// claim makes a server the caller's to try, unless somebody else tries it after a
// pause. The caller has to call reached, refused, failed or untried.
func (l *List) claim(host int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[host].trial {
		return false
	}
	l.hosts[host].trial = true
	return true
}

// reached: a server will do.
func (l *List) reached(host int) { l.note(host, func(*state) {}) }

// refused: it answered and will not do, or is a second choice.
func (l *List) refused(host int) {
	l.note(host, func(h *state) { h.behind = time.Now().Add(memory) })
}

func (l *List) note(host int, how func(*state)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host] = state{}
	how(&l.hosts[host])
}

// failed: it could not be reached. Of several that find this out at the same
// time only the first lengthens the pause.
func (l *List) failed(c choice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hosts[c.host]
	if now := time.Now(); h.failures == 0 || !now.Before(h.paused) {
		h.failures++
		h.paused = now.Add(pause(h.failures))
	}
	if c.suspect && !c.paused {
		h.trial = false
	}
}

// untried: it was not the server's doing that nothing came of it.
func (l *List) untried(c choice) {
	if c.suspect && !c.paused {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hosts[c.host].trial = false
	}
}

// rest waits after walks that found nobody.
func (l *List) rest(ctx context.Context) {
	l.mu.Lock()
	wait := time.Until(l.rested)
	l.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ended: a walk has found somebody, or nobody. Of several that end in vain at the
// same time only the first lengthens the rest.
func (l *List) ended(found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case found:
		l.vain, l.rested = 0, time.Time{}
	case !now.Before(l.rested):
		l.vain++
		l.rested = now.Add(doubled(firstRest, lastRest, l.vain))
	}
}

// pause is how long a server is passed over after its nth failure in a row.
func pause(n int) time.Duration { return doubled(firstPause, lastPause, n) }

// doubled is first at the first time, twice as much each time after, and no more
// than last.
func doubled(first, last time.Duration, nth int) time.Duration {
	d := first
	for ; nth > 1 && d < last; nth-- {
		d *= 2
	}
	return min(d, last)
}

// Package hosts chooses among the servers that one DSN names.
//
// A List remembers for each server the outcome of the last tries, but not the addresses of its
// name: each dial resolves a name anew. A Walk tries the servers of a list, one after the other,
// until a server fits.
//
// libpq tries a list from its beginning each time ("Specifying Multiple Hosts" in its
// manual), and waits each time for a dead server that stands first. A pool dials often,
// so a List remembers. pgjdbc remembers too (hostRecheckSeconds), but skips a server that
// has failed. Here a paused server is tried after the others: no dial fails before every
// server was tried.
package hosts

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/pause"
)

const (
	// firstPause is how long other servers are tried before a server that could not be reached.
	// With each failure this time doubles, up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// firstRest is how long the next walk waits after a walk that found no server. The
	// wait doubles with each such walk, up to lastRest. Without it, while there is no
	// primary, many waiting callers would keep the standby busy with logins. The wait also delays
	// the discovery of the new primary.
	firstRest = 10 * time.Millisecond
	lastRest  = 100 * time.Millisecond
	// memory is how long a server of the wrong role is tried after the others. It changes only the
	// order.
	memory = 10 * time.Second
)

// List is the servers of a DSN, in its order. It is safe for concurrent use.
type List struct {
	names []string

	mu    sync.Mutex // protects following fields
	hosts []state
	walks pause.Tries // walks that found no server, and the pause after them
}

// state is the outcome of the last tries of a server.
type state struct {
	failed pause.Tries // the server could not be reached; until the next try it is tried after the others
	trial  bool        // a dial is trying it after its pause
	behind time.Time   // it had the wrong role, and is tried after others until then
}

// New makes a list. The names are for errors.
func New(names ...string) *List {
	return &List{names: names, hosts: make([]state, len(names))}
}

// Len counts the servers.
func (l *List) Len() int { return len(l.names) }

// Names are the servers in the DSN's order.
func (l *List) Names() []string { return slices.Clone(l.names) }

// choice is a server to try next.
type choice struct {
	host    int
	suspect bool // it could not be reached the last time
	paused  bool // its pause is not over, or another dial is trying it
}

// choose returns the best server that was not tried yet, in the DSN's order: first servers that may
// fit, then servers that had the wrong role lately, then paused servers. After a pause only one
// dial tries the server. That dial must call reached, refused, failed or endTrial.
func (l *List) choose(tried []bool) (choice, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	best, rank := choice{host: -1}, 3
	for i, h := range l.hosts {
		if tried[i] {
			continue
		}
		c, r := choice{host: i, suspect: h.failed.Any()}, 0
		switch {
		case c.suspect && (h.trial || now.Before(h.failed.Next())):
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

// hasUntried reports whether there is a server to try that is not paused.
func (l *List) hasUntried(tried []bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i, h := range l.hosts {
		if !tried[i] && (!h.failed.Any() || !h.trial && !now.Before(h.failed.Next())) {
			return true
		}
	}
	return false
}

// claim reserves a server for the caller to try, unless another dial is trying it after a
// pause. The caller must call reached, refused, failed or endTrial.
func (l *List) claim(host int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[host].trial {
		return false
	}
	l.hosts[host].trial = true
	return true
}

// reached: a server fits.
func (l *List) reached(host int) { l.update(host, func(*state) {}) }

// refused: the server answered and does not fit, or is a second choice.
func (l *List) refused(host int) {
	l.update(host, func(h *state) { h.behind = time.Now().Add(memory) })
}

func (l *List) update(host int, how func(*state)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host] = state{}
	how(&l.hosts[host])
}

// failed: the server could not be reached. If several dials find this out at the same time, only
// the first lengthens the pause.
func (l *List) failed(c choice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hosts[c.host]
	h.failed.Failed(firstPause, lastPause)
	if c.suspect && !c.paused {
		h.trial = false
	}
}

// endTrial ends the trial of a server without a verdict: the try ended for another reason than the server.
func (l *List) endTrial(c choice) {
	if c.suspect && !c.paused {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hosts[c.host].trial = false
	}
}

// rest waits after walks that found no server.
func (l *List) rest(ctx context.Context) {
	l.mu.Lock()
	wait := time.Until(l.walks.Next())
	l.mu.Unlock()
	if wait > 0 {
		pause.For(ctx, wait)
	}
}

// recordWalk records the end of a walk. found: it has found a server. If several walks end in vain at the same
// time, only the first lengthens the rest.
func (l *List) recordWalk(found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found {
		l.walks = pause.Tries{}
	} else {
		l.walks.Failed(firstRest, lastRest)
	}
}

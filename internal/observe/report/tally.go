package report

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Other is the name under which a Tally counts what is beyond its bound, or has no name.
const Other = "other"

// Ended takes the place of an SQLSTATE, and of its class, for a statement whose caller's context has ended.
const Ended = "ended"

// tally counts by name: the first names up to a bound, and the rest together. A name that is known costs no lock and no allocation.
type tally struct {
	counts atomic.Pointer[map[string]*atomic.Uint64] // the map does not change
	mu     sync.Mutex                                // held by who makes a new map
}

// add counts name. most is the bound.
func (t *tally) add(name string, most int) {
	if n := t.known()[name]; n != nil {
		n.Add(1)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.known())
	if all[name] == nil && len(all) >= most {
		name = Other
	}
	n := all[name]
	if n == nil {
		if all == nil {
			all = map[string]*atomic.Uint64{}
		}
		n = new(atomic.Uint64)
		all[name] = n
		t.counts.Store(&all)
	}
	n.Add(1)
}

func (t *tally) known() map[string]*atomic.Uint64 {
	if all := t.counts.Load(); all != nil {
		return *all
	}
	return nil
}

// each calls fn for each name.
func (t *tally) each(fn func(name string, n uint64)) {
	for name, n := range t.known() {
		fn(name, n.Load())
	}
}

// mostClasses is how many classes of SQLSTATE are counted by themselves. PostgreSQL has 43, and a program meets few.
const mostClasses = 20

// StatementFailed counts an error of a statement by its SQLSTATE; empty: the driver has given none.
func (r *Report) StatementFailed(state string) {
	class := Other
	if state == Ended {
		class = Ended
	} else if len(state) >= 2 && isClass(state[0]) && isClass(state[1]) {
		class = state[:2]
	}
	r.failed.add(class, mostClasses)
}

func isClass(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' }

// StatementsFailed calls fn for each class of SQLSTATE.
func (r *Report) StatementsFailed(fn func(class string, n uint64)) { r.failed.each(fn) }

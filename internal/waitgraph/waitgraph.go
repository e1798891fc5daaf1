// Package waitgraph finds the wait cycle of pools: every connection is held by a task that waits
// for one more. It is pure: a snapshot goes in, a verdict comes out.
package waitgraph

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Snapshot is who held the connections of some pools, and who waited for a connection, at one moment. K
// identifies whoever can hold and wait. A pool without holders has a connection to give.
type Snapshot[K comparable] struct {
	At      time.Time
	Moves   []uint64    // by pool: connections that it has lent or taken back so far
	Holders []Holder[K] // one for each connection
	Waiters []Waiter[K] // in the order in which they came
}

// Holder is the holder of one connection.
type Holder[K comparable] struct {
	Who        K
	Pool       int          // of the connection
	Operations uint64       // so far, on the connection
	Name       fmt.Stringer // for people
}

// Waiter is one call that waits.
type Waiter[K comparable] struct {
	Number uint64 // greater than 0, and than the Numbers of earlier waiters
	Pool   int    // for whose connection it waits
	For    []K    // all who cannot go on while it waits
	Victim bool   // it may be told that there is a deadlock
}

// Cycle is a closed wait cycle.
type Cycle struct {
	At    time.Time
	pools []bool
	names []fmt.Stringer
	state state
}

// Has reports whether the connections of a pool are part of c.
func (c *Cycle) Has(pool int) bool { return c.pools[pool] }

// state differs between two cycles if anything has moved in between.
type state struct {
	moves, operations uint64
	waiting           int    // number of waiters who hold something
	newest            uint64 // Number of the last of these waiters
}

// Find returns the cycle, or nil if there is none. The cycle is some pools such that each holder of one
// of their connections waits for one of their connections. victim is the Number of the last waiter in the cycle
// that may be told; 0: none may.
func (s *Snapshot[K]) Find() (found *Cycle, victim uint64) {
	found = &Cycle{At: s.At, pools: make([]bool, len(s.Moves))}
	for _, h := range s.Holders {
		found.pools[h.Pool] = true
	}
	for s.narrow(found.pools) {
	}
	holds := make(map[K]bool, len(s.Holders))
	for _, h := range s.Holders {
		if found.pools[h.Pool] {
			holds[h.Who] = true
			found.names = append(found.names, h.Name)
			found.state.operations += h.Operations
		}
	}
	if len(holds) == 0 {
		return nil, 0
	}
	for i, moves := range s.Moves {
		if found.pools[i] {
			found.state.moves += moves
		}
	}
	for _, w := range s.Waiters {
		if !found.pools[w.Pool] || !slices.ContainsFunc(w.For, func(who K) bool { return holds[who] }) {
			continue
		}
		found.state.waiting++
		found.state.newest = w.Number
		if w.Victim {
			victim = w.Number
		}
	}
	return found, victim
}

// narrow takes out of pools those that are in no cycle with the rest: nobody waits for them, or one of their
// holders does not wait for a pool of the rest. It reports whether it has taken one out.
func (s *Snapshot[K]) narrow(pools []bool) (changed bool) {
	waits, wanted := map[K]bool{}, make([]bool, len(pools))
	for _, w := range s.Waiters {
		if wanted[w.Pool] = true; pools[w.Pool] {
			for _, who := range w.For {
				waits[who] = true
			}
		}
	}
	drop := func(pool int) {
		changed = changed || pools[pool]
		pools[pool] = false
	}
	for _, h := range s.Holders {
		if !waits[h.Who] {
			drop(h.Pool)
		}
	}
	for i := range pools {
		if !wanted[i] {
			drop(i)
		}
	}
	return changed
}

// Names lists the holders, the first ten of them.
func (c *Cycle) Names() string {
	const most = 10
	var names []string
	for _, n := range c.names[:min(len(c.names), most)] {
		names = append(names, n.String())
	}
	text := strings.Join(names, ", ")
	if more := len(c.names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Watch follows a cycle from one look to the next. The zero value has seen none. Only
// time tells a deadlock from holders that are busy elsewhere: a goroutine beside a
// transaction makes the same calls as the transaction's own.
type Watch struct {
	last  atomic.Pointer[Cycle] // the cycle at the last look; nil: none
	still time.Time             // when the present cycle was first seen; nothing has moved since
}

// Look takes the result of a look, or nil if there is no cycle. deadlock is true if nothing has moved
// for as long as after says. If after is zero, deadlock is never true. Calls must not overlap.
func (w *Watch) Look(found *Cycle, after time.Duration) (deadlock bool) {
	before := w.last.Swap(found)
	switch {
	case found == nil:
	case before == nil || before.state != found.state:
		w.still = found.At
	default:
		return after > 0 && found.At.Sub(w.still) >= after
	}
	return false
}

// Broken says that somebody was told of the deadlock: the next look begins anew.
func (w *Watch) Broken() { w.last.Store(nil) }

// Around returns the cycle that was closed when a waiter gave up; nil: there was none. waited is how
// long the waiter had waited. Around may run at the same time as Look.
func (w *Watch) Around(waited time.Duration) *Cycle {
	if c := w.last.Load(); c != nil && time.Since(c.At) < waited {
		return c
	}
	return nil
}

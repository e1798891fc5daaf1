// Package waitgraph finds the wait cycle of a pool: every connection is held by a task
// that waits for one more. It is pure: a snapshot goes in, a verdict comes out.
package waitgraph

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Snapshot is who held a pool's connections, and who waited for a connection, at one moment. K
// identifies whoever can hold and wait.
type Snapshot[K comparable] struct {
	At      time.Time
	Moves   uint64      // connections that the pool has lent or taken back so far
	Holders []Holder[K] // one for each connection
	Waiters []Waiter[K] // in the order in which they came
}

// Holder is the holder of one connection.
type Holder[K comparable] struct {
	Who        K
	Operations uint64       // so far, on the connection
	Name       fmt.Stringer // for people
}

// Waiter is one call that waits.
type Waiter[K comparable] struct {
	Number uint64 // greater than the Numbers of earlier waiters
	For    []K    // all who cannot go on while it waits
	Victim bool   // it may be told that there is a deadlock
}

// Cycle is a closed wait cycle.
type Cycle struct {
	At    time.Time
	names []fmt.Stringer
	state state
}

// state differs between two cycles if anything has moved in between.
type state struct {
	moves, operations uint64
	waiting           int    // number of waiters who hold something
	newest            uint64 // Number of the last of these waiters
}

// Find returns the cycle, or nil if it is not closed: then a holder of a connection does not wait.
// victim is the index of the last waiter in the cycle that may be told; -1: none may.
func (s *Snapshot[K]) Find() (found *Cycle, victim int) {
	waits := make(map[K]bool, len(s.Holders))
	found = &Cycle{At: s.At, state: state{moves: s.Moves}}
	for _, h := range s.Holders {
		waits[h.Who] = false
		found.names = append(found.names, h.Name)
		found.state.operations += h.Operations
	}
	victim = -1
	for i, w := range s.Waiters {
		holds := false
		for _, who := range w.For {
			if _, ok := waits[who]; ok {
				waits[who], holds = true, true
			}
		}
		if !holds {
			continue
		}
		found.state.waiting++
		found.state.newest = w.Number
		if w.Victim {
			victim = i
		}
	}
	for _, w := range waits {
		if !w {
			return nil, -1
		}
	}
	if len(waits) == 0 {
		return nil, -1
	}
	return found, victim
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

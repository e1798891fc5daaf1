// Package relay lets one runner at a time do the work, as long as the runner makes progress. When a
// runner is at one piece of work for too long, another may begin beside it. The first runner then
// stops after its piece.
package relay

import (
	"sync/atomic"
	"time"
)

// Relay is the work. The zero value has no runner. A Relay is safe for concurrent use.
type Relay struct {
	last atomic.Pointer[Runner] // the last runner that has begun; nil: it has ended
}

// Runner does the work.
type Runner struct {
	relay *Relay
	since atomic.Int64 // when it began its piece, in nanoseconds since the epoch
}

// Busy reports whether the last runner has been at its piece for less than patience.
func (r *Relay) Busy(patience time.Duration) bool {
	last := r.last.Load()
	return last != nil && time.Since(time.Unix(0, last.since.Load())) < patience
}

// Begin makes a new last runner, which begins its first piece.
func (r *Relay) Begin() *Runner {
	me := &Runner{relay: r}
	me.Next()
	r.last.Store(me)
	return me
}

// Last reports whether no other runner has begun after me.
func (me *Runner) Last() bool { return me.relay.last.Load() == me }

// Next says that the runner begins a new piece.
func (me *Runner) Next() { me.since.Store(time.Now().UnixNano()) }

// End says that the runner has stopped.
func (me *Runner) End() { me.relay.last.CompareAndSwap(me, nil) }

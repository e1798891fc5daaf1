// Package history remembers how a connector stood in each second of the last minute. It costs a
// statement nothing: a timer looks once a second, while connections are in use.
package history

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/histogram"
	"github.com/pooldriver/pooldriver/internal/report"
)

const (
	// Length is how long a moment is remembered.
	Length = time.Minute
	// Step is the time between two moments.
	Step = time.Second
	// kept is one more than needed: the oldest moment is the beginning of the last minute.
	kept = int(Length/Step) + 1
)

// Moment is how a connector stood at a time. The counters count since the beginning.
type Moment struct {
	At             time.Time
	InUse, Waiting int
	Moves          uint64 // see pool.Stats
	Pipelined      uint64
	DialErrors     uint64
	Wait           histogram.Snapshot
	Failures       [report.Failures]uint64
}

// Recorder remembers moments. Its timer is set while connections are in use, statements wait, or
// something has changed since the last moment.
type Recorder struct {
	look func() Moment
	set  atomic.Bool // the timer is set

	mu      sync.Mutex // protects following fields
	timer   *time.Timer
	stopped bool
	ring    []Moment // grows up to kept moments
	oldest  int      // its index in a full ring
}

// Init makes r record what look returns.
func (r *Recorder) Init(look func() Moment) { r.look = look }

// Wake is called when a connector that may have been idle is used. In a bubble of testing/synctest
// nothing is recorded: a timer that is always set hides from the bubble that its goroutines hang.
func (r *Recorder) Wake() {
	if r.set.Load() || bubble.Name(time.Now()) != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.set.Swap(true) {
		return
	}
	if len(r.ring) == 0 { // the first use
		r.ring = append(r.ring, Moment{At: time.Now()})
	}
	r.timer = time.AfterFunc(Step, r.tick)
}

// tick records a moment. A use that begins after set is false sets the timer again. A use that has
// begun before is in the moment.
func (r *Recorder) tick() {
	r.set.Store(false)
	if now := r.look(); r.record(now) {
		r.Wake()
	}
}

// record remembers a moment, and reports whether the connector is in use.
func (r *Recorder) record(now Moment) (used bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used = now.InUse > 0 || now.Waiting > 0
	if n := len(r.ring); n == 0 {
		used = true
	} else {
		last := &r.ring[(r.oldest+n-1)%n]
		used = used || now.Moves != last.Moves || now.DialErrors != last.DialErrors || now.Failures != last.Failures
	}
	if len(r.ring) < kept {
		r.ring = append(r.ring, now)
		return used
	}
	r.ring[r.oldest] = now
	r.oldest = (r.oldest + 1) % kept
	return used
}

// Moments returns the moments of the last minute, the oldest first. The last moment is now. The
// first one may be older: it says how the minute began.
func (r *Recorder) Moments() []Moment {
	now := r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(append(make([]Moment, 0, len(r.ring)+1), r.ring[r.oldest:]...), r.ring[:r.oldest]...)
	for len(all) > 1 && now.At.Sub(all[1].At) >= Length {
		all = all[1:]
	}
	return append(all, now)
}

// Stop ends the recording.
func (r *Recorder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

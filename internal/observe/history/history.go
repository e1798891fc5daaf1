// Package history remembers how a connector stood in each second of the last minute, and the peak of each
// minute of the last hour. It costs a statement nothing: a timer looks once a second, while connections are in use.
package history

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

const (
	// Length is how long a moment is remembered.
	Length = time.Minute
	// Step is the time between two moments.
	Step = time.Second
	// kept is one more than needed: the oldest moment is the beginning of the last minute.
	kept = int(Length/Step) + 1
)

// Source is what a Recorder records.
type Source[M any] struct {
	// Look is the moment of now. The timer that calls for it is late by so much.
	Look func(late time.Duration) M
	// First is the moment before the first use.
	First func() M
	At    func(M) time.Time
	// Used reports whether the connector is in use at now, or was used since last.
	Used func(now, last M) bool
	// Second is called after each second.
	Second func(now, last M)
	// Peak is the most connections that were in use since the last call of Peak.
	Peak func() int
}

// Recorder remembers moments. Its timer is set while connections are in use, statements wait, or
// something has changed since the last moment.
type Recorder[M any] struct {
	source Source[M]
	set    atomic.Bool // the timer is set

	mu      sync.Mutex // protects following fields
	timer   *time.Timer
	stopped bool
	ring    []M         // grows up to kept moments
	oldest  int         // its index in a full ring
	peaks   [60]minutes // of the last hour
}

// minutes is the peak of one minute, counted from 1970.
type minutes struct {
	minute int64
	peak   int
}

// Init makes r record s.
func (r *Recorder[M]) Init(s Source[M]) { r.source = s }

// Wake is called when a connector that may have been idle is used. In a bubble of testing/synctest
// nothing is recorded: a timer that is always set hides from the bubble that its goroutines hang.
func (r *Recorder[M]) Wake() {
	if r.set.Load() || bubble.Name(time.Now()) != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.set.Swap(true) {
		return
	}
	due := time.Now().Add(Step)
	r.timer = time.AfterFunc(Step, func() { r.tick(time.Since(due)) })
	if len(r.ring) == 0 { // the first use
		r.ring = append(r.ring, r.source.First())
	}
}

// tick records a moment, so late after its time. A use that begins after set is false sets the timer again. A use that has
// begun before is in the moment.
func (r *Recorder[M]) tick(late time.Duration) {
	r.set.Store(false)
	now := r.source.Look(late)
	last, used := r.record(now, r.source.Peak())
	if used {
		r.Wake()
	}
	r.source.Second(now, last)
}

// record remembers a moment. It returns the moment before, and whether the connector is in use.
func (r *Recorder[M]) record(now M, peak int) (last M, used bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	minute := r.source.At(now).Unix() / 60
	if m := &r.peaks[minute%60]; m.minute != minute {
		*m = minutes{minute, peak}
	} else {
		m.peak = max(m.peak, peak)
	}
	n := len(r.ring)
	if n > 0 {
		last = r.ring[(r.oldest+n-1)%n]
	}
	used = n == 0 || r.source.Used(now, last)
	if n < kept {
		r.ring = append(r.ring, now)
		return last, used
	}
	r.ring[r.oldest] = now
	r.oldest = (r.oldest + 1) % kept
	return last, used
}

// Moments returns the moments of the last minute, the oldest first. The last moment is now. The
// first one may be older: it says how the minute began.
func (r *Recorder[M]) Moments() []M {
	now := r.source.Look(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(append(make([]M, 0, len(r.ring)+1), r.ring[r.oldest:]...), r.ring[:r.oldest]...)
	for len(all) > 1 && r.source.At(now).Sub(r.source.At(all[1])) >= Length {
		all = all[1:]
	}
	return append(all, now)
}

// Peak is the highest peak of the last hour.
func (r *Recorder[M]) Peak() (peak int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := time.Now().Unix()/60 - 59
	for _, m := range r.peaks {
		if m.minute >= first {
			peak = max(peak, m.peak)
		}
	}
	return peak
}

// Stop ends the recording.
func (r *Recorder[M]) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

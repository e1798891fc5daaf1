package inspect

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver"
)

// maxRows bounds each list of a Snapshot.
const maxRows = 1000

// Snapshot is what the pools look like at a moment. It is the JSON of the page. Durations
// are in nanoseconds.
type Snapshot struct {
	At    time.Time
	Pools []Pool
}

// Pool is one Connector.
type Pool struct {
	Name     string               // its Target
	Settings []pooldriver.Setting // the settings that are not the default
	Stats    pooldriver.Stats
	// Recent is what has happened lately.
	Recent Recent
	// The lists have at most 1000 entries each.
	Holders   []pooldriver.Holder
	Waiters   []pooldriver.Waiter
	Tasks     []pooldriver.TaskState
	CallSites []pooldriver.CallSite
}

// Recent is what has happened in the last minute or, if the first request for a page came later,
// since that request.
type Recent struct {
	For time.Duration // 0: this is the first request; the figures are of all time
	// Acquired is how many statements have got a connection or an error. Half of them waited no
	// longer than WaitP50, and 99 of 100 no longer than WaitP99. Both are the upper bound of a
	// histogram's bucket.
	Acquired         uint64
	WaitP50, WaitP99 time.Duration
	// Over: the true WaitP99 is more than the largest bound, and WaitP99 is this bound.
	Over bool
}

// Snapshot asks the Connectors.
func (i *Inspector) Snapshot() Snapshot {
	s := Snapshot{At: time.Now(), Pools: make([]Pool, len(i.pools))}
	for n, w := range i.pools {
		s.Pools[n] = w.look(s.At)
	}
	return s
}

func writeJSON(w io.Writer, s Snapshot) {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	_ = e.Encode(s) // the reader has gone
}

// watched is a Connector, with what it looked like at earlier requests.
type watched struct {
	connector *pooldriver.Connector

	mu      sync.Mutex // protects following fields, and orders the moments
	history []moment   // the oldest first
}

// moment is the histogram of the waits at one time.
type moment struct {
	at   time.Time
	wait pooldriver.Histogram
}

const (
	historyLength = time.Minute
	historyStep   = time.Second
)

func (w *watched) look(now time.Time) Pool {
	c := w.connector
	p := Pool{
		Name:      c.Target(),
		Settings:  slices.DeleteFunc(c.Settings(), func(s pooldriver.Setting) bool { return s.Value == s.Default }),
		Holders:   atMost(maxRows, c.Holders()),
		Waiters:   atMost(maxRows, c.Waiters()),
		Tasks:     atMost(maxRows, c.Tasks()),
		CallSites: atMost(maxRows, c.CallSites()),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Stats = c.Stats()
	p.Recent = w.sinceLocked(moment{now, p.Stats.Wait})
	return p
}

func atMost[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// sinceLocked compares now with the oldest moment of the last minute, and remembers now.
func (w *watched) sinceLocked(now moment) Recent {
	for len(w.history) > 1 && now.at.Sub(w.history[0].at) > historyLength {
		w.history = w.history[1:]
	}
	r, wait := Recent{}, now.wait
	if n := len(w.history); n > 0 {
		r.For = max(0, now.at.Sub(w.history[0].at)) // another viewer's look may have begun later
		wait = minus(wait, w.history[0].wait)
		if now.at.Sub(w.history[n-1].at) < historyStep {
			n = 0 // several viewers: the last moment is enough
		}
		if n > 0 {
			w.history = append(w.history, now)
		}
	} else {
		w.history = append(w.history, now)
	}
	r.Acquired = wait.Count
	r.WaitP50, _ = quantile(wait, 0.5)
	r.WaitP99, r.Over = quantile(wait, 0.99)
	return r
}

// minus is what a histogram has counted since the moment of before.
func minus(now, before pooldriver.Histogram) pooldriver.Histogram {
	now.Count -= before.Count
	now.Sum -= before.Sum
	for i := range now.Buckets {
		now.Buckets[i] -= before.Buckets[i]
	}
	return now
}

// quantile returns the upper bound of the bucket that has the q-th part of what was counted. over:
// this is the last bucket, which has no upper bound; bound is then that of the bucket before.
func quantile(h pooldriver.Histogram, q float64) (bound time.Duration, over bool) {
	var all uint64
	for _, n := range h.Buckets {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	bounds := pooldriver.HistogramBounds()
	var below uint64
	for i, n := range h.Buckets {
		below += n
		if float64(below) >= q*float64(all) {
			if i < len(bounds) {
				return bounds[i], false
			}
			break
		}
	}
	return bounds[len(bounds)-1], true
}

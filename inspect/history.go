package inspect

import (
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver"
)

// watched is a Connector, with what it looked like at earlier requests.
type watched struct {
	connector *pooldriver.Connector

	mu      sync.Mutex // protects following fields, and orders the moments
	history []moment   // the oldest first
	moves   uint64     // of the last moment; see movesOf
	moved   time.Time  // since when moves has not changed
	running map[uint64]statement
	shown   Verdict   // the last one
	held    time.Time // when something has last justified shown's level
}

// moment is what is remembered of one time.
type moment struct {
	at       time.Time
	wait     pooldriver.Histogram
	failures map[pooldriver.AcquireFailure]uint64
}

// statement is one that is running.
type statement struct {
	taken  time.Time // when its connection was
	number uint64    // of the operations since then
	since  time.Time // when it was first seen
}

const (
	historyLength = time.Minute
	historyStep   = time.Second
	// levelLasts is how long a level stays when nothing justifies it any more: a level that changes
	// with every look tells nothing.
	levelLasts = 30 * time.Second
)

// Window is what has been seen in the last seconds.
type Window struct {
	// Still is for how long no connection was lent or given back, and no statement has begun.
	Still time.Duration
	// Running says for how long at least each statement has been running, by Holder.Conn.
	Running map[uint64]time.Duration
	// Failed counts the statements of the last ten seconds that got no connection, by reason.
	Failed map[pooldriver.AcquireFailure]uint64
}

// failedFor is the time of Window.Failed.
const failedFor = 10 * time.Second

func (w *watched) look(now time.Time) Pool {
	c := w.connector
	p := Pool{
		Name:         c.Target(),
		Settings:     slices.DeleteFunc(c.Settings(), func(s pooldriver.Setting) bool { return s.Value == s.Default }),
		Holders:      atMost(maxRows, c.Holders()),
		Waiters:      atMost(maxRows, c.Waiters()),
		Tasks:        atMost(maxRows, c.Tasks()),
		CallSites:    atMost(maxRows, c.CallSites()),
		BufferedRows: atMost(maxRows, c.BufferedRows()),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Stats = c.Stats()
	p.Recent = w.sinceLocked(moment{now, p.Stats.Wait, p.Stats.AcquireFailures})
	p.Window = w.windowLocked(now, &p)
	p.Verdict = w.verdictLocked(now, Judge(p))
	return p
}

// windowLocked compares p with what was seen before.
func (w *watched) windowLocked(now time.Time, p *Pool) Window {
	if moves := movesOf(p); moves != w.moves || w.moved.IsZero() {
		w.moves, w.moved = moves, now
	}
	running := make(map[uint64]statement)
	window := Window{Still: max(0, now.Sub(w.moved)), Running: map[uint64]time.Duration{}, Failed: map[pooldriver.AcquireFailure]uint64{}}
	for _, h := range p.Holders {
		if !h.Running {
			continue
		}
		s, ok := w.running[h.Conn]
		if !ok || s.number != h.Statements || !s.taken.Equal(h.Since) {
			s = statement{h.Since, h.Statements, now}
		}
		running[h.Conn] = s
		window.Running[h.Conn] = max(0, now.Sub(s.since))
	}
	w.running = running
	before := w.history[0]
	for _, m := range w.history {
		if now.Sub(m.at) >= failedFor {
			before = m
		}
	}
	for why, n := range p.Stats.AcquireFailures {
		if n > before.failures[why] {
			window.Failed[why] = n - before.failures[why]
		}
	}
	return window
}

// movesOf changes whenever a connection is lent or given back, or a statement begins.
func movesOf(p *Pool) uint64 {
	moves := p.Stats.Pool.Moves
	for _, h := range p.Holders {
		moves += h.Statements
	}
	return moves
}

// verdictLocked keeps the level of a verdict for a while when v has a lower one.
func (w *watched) verdictLocked(now time.Time, v Verdict) Verdict {
	if ago := now.Sub(w.held); rank(v.Level) < rank(w.shown.Level) && ago < levelLasts {
		return Verdict{w.shown.Level, Brief(ago.Round(time.Second)) + " ago: " + w.shown.Sentence + " Now: " + v.Sentence}
	}
	w.held, w.shown = now, v
	return v
}

// rank orders levels.
func rank(level string) int { return slices.Index([]string{"", "calm", "busy", "bad"}, level) }

// sinceLocked compares a moment with the oldest one of the last minute, and remembers it.
func (w *watched) sinceLocked(now moment) Recent {
	for len(w.history) > 1 && now.at.Sub(w.history[0].at) > historyLength {
		w.history = w.history[1:]
	}
	r, wait, n := Recent{}, now.wait, len(w.history)
	if n > 0 {
		r.For = max(0, now.at.Sub(w.history[0].at)) // another viewer's look may have begun later
		wait = minus(wait, w.history[0].wait)
	}
	if n == 0 || now.at.Sub(w.history[n-1].at) >= historyStep { // else there are several viewers, and the last moment will do
		w.history = append(w.history, now)
	}
	r.Acquired = wait.Count
	r.WaitP50, _ = quantile(wait, 0.5)
	r.WaitP99, r.Over = quantile(wait, 0.99)
	return r
}

// minus is what a histogram has counted since it was before.
func minus(now, before pooldriver.Histogram) pooldriver.Histogram {
	now.Count -= before.Count
	now.Sum -= before.Sum
	for i := range now.Buckets {
		now.Buckets[i] -= before.Buckets[i]
	}
	return now
}

// quantile returns the upper bound of the bucket that has the q-th part of what was
// counted. over: it is the last one, which has none; the bound is the last but one's.
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

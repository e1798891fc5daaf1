package pooldriver

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/observe/callsite"
)

// leakWatch warns of connections that are held for longer than Config.LeakAfter. Its timer is set
// while somebody may hold a connection.
type leakWatch struct {
	connector *Connector
	set       atomic.Bool // the timer is set

	mu      sync.Mutex // serialises changes of set and of the following fields
	timer   *time.Timer
	due     time.Time // when the timer goes off, if set
	where   string    // the bubble of testing/synctest to which the timer belongs; empty: none
	stopped bool
}

// watch is called for each connection that was taken, when its holder is known. Either watch sets
// the timer, or the timer is set already, and look will see the holder.
func (l *leakWatch) watch() {
	if !l.set.Load() {
		l.wake(l.connector.config.LeakAfter)
	}
}

// wake sets the timer to go off after d, unless the timer is set for an earlier time.
func (l *leakWatch) wake(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.moveLocked(now)
	due := now.Add(d)
	if l.stopped || l.timer != nil && l.due.After(now) && !due.Before(l.due) {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.due = due
	l.set.Store(l.where == "") // false in a bubble: its timer ends with the bubble, and look is not called
	l.timer = time.AfterFunc(d, l.look)
}

// moveLocked forgets a timer that was made in another bubble: it must not be used here.
func (l *leakWatch) moveLocked(now time.Time) {
	if where := bubble.Name(now); where != l.where {
		l.timer, l.where = nil, where
	}
}

func (l *leakWatch) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.moveLocked(time.Now())
	if l.timer != nil {
		l.timer.Stop()
	}
}

// look warns, once in each checkout, and sets the timer for the next look. A connection that is
// taken after set is false sets the timer itself: see watch.
func (l *leakWatch) look() {
	l.set.Store(false)
	next := time.Duration(0)
	for _, e := range enginesOf(l.connector) {
		for _, h := range e.Looks() {
			if left := l.connector.config.LeakAfter - h.HeldFor; left > 0 {
				if next == 0 || left < next {
					next = left
				}
				continue
			}
			if h.Label != nil && slices.Contains(l.connector.config.LeakExempt, *h.Label) {
				continue
			}
			if h.Conn.Told.Swap(h.Checkout+1) != h.Checkout+1 {
				l.tell(&h, e)
			}
		}
	}
	if next > 0 {
		l.wake(next)
	}
}

func (l *leakWatch) tell(held *binding.Look, e *binding.Engine) {
	h := holderOf(held, e)
	l.connector.report.Leak(advice(h.Pin, h.Task), "held", rounded(held.HeldFor), "idle", rounded(h.Idle), "pin", string(h.Pin),
		"label", h.Label, "task", h.Task, "statement", h.Statement, "statements", h.Statements,
		"process", h.ProcessID, "host", h.Host, "taken_at", callsite.Text(held.Site.Frames()), "statement_at", callsite.Text(held.Statement.Frames()))
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

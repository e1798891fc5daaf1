package binding

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// This file looks at who has a connection, and who waits for one. It waits for no session's
// lock: a connection whose statement hangs has to be seen, too.

// Look is a connection that somebody has.
type Look struct {
	usage.Look
	Conn    *connpool.Conn
	Task    *task.Task // nil: none
	Taken   time.Time
	Running bool
	HeldFor time.Duration
	RunsFor time.Duration // how long the present operation has been running
	IdleFor time.Duration // how long no operation has been running; Look.Idle is the sum of such times
}

// Looks returns the connections that have a holder, in the order in which they were taken.
func (e *Engine) Looks() (all []Look) {
	for r := range e.connections() {
		if l, ok := look(r, e.usage.Clock); ok {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Look) int { return cmp.Compare(a.Since, b.Since) })
	return all
}

// look returns who has r. ok is false if nobody has. If r is lent to somebody else
// meanwhile, look tries again. After the last try it leaves r out: nobody has had r for
// long.
func look(r *connpool.Conn, clock *usage.Clock) (l Look, ok bool) {
	const tries = 3
	for range tries {
		s := seatOf(r)
		if s == nil || !s.Has(r) {
			return Look{}, false
		}
		checkout, b := r.Meter.Checkout(), s.binding.Load()
		if !s.Has(r) || seatOf(r) != s {
			continue
		}
		// attach sets the seat's binding, then the meter counts a new checkout, and then the seat has the
		// connection. It has it after we read the checkout's number, so the checkout has begun completely.
		// If the number is the same below, the binding, which was read in between, is the checkout's.
		// A statement that ends while we look is shown as running.
		running := s.lock.Locked()
		look, same := r.Meter.Look()
		running = running || s.lock.Locked() || look.Pin == pinning.Raw
		if !same || look.Checkout != checkout {
			continue
		}
		now := clock.Fine()
		l = Look{Look: look, Conn: r, Task: b.task, Taken: clock.Time(look.Since), Running: running}
		l.HeldFor = time.Duration(max(0, now-look.Since))
		lasts := min(time.Duration(max(0, now-look.Last)), l.HeldFor)
		if running {
			l.RunsFor = lasts
		} else {
			l.IdleFor = lasts
			l.Idle = min(l.Idle+l.IdleFor, l.HeldFor)
		}
		return l, true
	}
	return Look{}, false
}

// BufferedRows returns the open rows whose connection was taken back, the oldest first.
func (e *Engine) BufferedRows() []BufferedRows {
	s := &e.starvation
	s.mu.Lock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.buffered)), func(t BufferedRows) bool { return !t.whole })
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b BufferedRows) int { return a.At.Compare(b.At) })
	return all
}

// WaiterOf returns the task and the label of a waiter.
func WaiterOf(w pool.Waiting) (t *task.Task, label string) {
	switch who := w.Who.(type) {
	case *string:
		return nil, usage.Text(who)
	case *Binding:
		return who.task, who.task.Label()
	case *follow:
		return nil, usage.Text(who.label)
	case *waiter:
		if who.binding != nil {
			t = who.binding.task
		}
		return t, usage.Text(who.label)
	}
	return nil, ""
}

// RowsTooLarge reports whether open rows hold a connection only because they were too large to be
// read into memory.
func (e *Engine) RowsTooLarge() bool {
	for r := range e.connections() {
		if r.Session.Rows() == nil {
			continue
		}
		s := seatOf(r)
		if !s.tryLook(r) {
			continue
		}
		rows := r.Session.Rows()
		large := rows != nil && rows.TooLarge()
		s.unlock(none)
		if large {
			return true
		}
	}
	return false
}

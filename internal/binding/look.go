package binding

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// This file looks at who has a connection, and who waits for one. It waits for no session's
// lock: a connection whose statement hangs has to be seen, too.

// Look is a connection that somebody has.
type Look struct {
	usage.Look
	Conn    *Conn
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
		if l, ok := r.look(e.Usage().Clock); ok {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Look) int { return cmp.Compare(a.Since, b.Since) })
	return all
}

// look returns the holder of r. ok is false if r has none. If r gets another holder
// meanwhile, look tries again. After the last try it leaves r out: no holder has had r for
// long.
func (r *Conn) look(clock *usage.Clock) (l Look, ok bool) {
	const tries = 3
	for range tries {
		b, checkout := r.holder.Load(), r.Meter.Checkout()
		if b == nil {
			return Look{}, false
		}
		if r.holder.Load() != b {
			continue
		}
		// attach stores the holder after the meter's Begin, and takeOutLocked removes it. If the
		// holder is the same before and after we read the checkout's number, the checkout has
		// begun completely. A statement that ends while we look is shown as running.
		running := r.Locked()
		look, same := r.Meter.Look()
		running = running || r.Locked() || look.Pin == pinning.Raw
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

// Taken returns the open rows whose connection was taken back, the oldest first.
func (e *Engine) Taken() []Taken {
	s := &e.starvation
	s.mu.Lock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.taken)), func(t Taken) bool { return !t.whole })
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Taken) int { return a.At.Compare(b.At) })
	return all
}

// WaiterOf returns the task and the label of a waiter.
func WaiterOf(w pool.Waiting) (t *task.Task, label string) {
	switch who := w.Who.(type) {
	case *string:
		return nil, usage.Text(who)
	case *Binding:
		return who.task, who.task.Label()
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
		if r.Rows() == nil {
			continue
		}
		b := r.tryPeek()
		if b == nil {
			continue
		}
		rows := r.Rows()
		large := rows != nil && rows.TooLarge()
		b.endPeek(r)
		if large {
			return true
		}
	}
	return false
}

package pooldriver

import (
	"cmp"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
)

// A wait cycle is closed when every connection is held by a task that waits for one
// more. When nothing has moved for Config.DeadlockAfter, the waiter that closed it gets
// ErrDeadlock. In an implicit task nobody gets it: its program waits as over plain
// database/sql, and the error of its timeout names the holders. docs/adr/0008.

// holder is a task that has a connection or, if task is nil, a checkout without one.
type holder struct {
	task      *task.Task
	pin       pinning.Pin // None: nothing but the use of it
	since     time.Time
	connector *core
	last      *string // statement; nil: none
}

func (h holder) String() string {
	text := "a checkout without a task"
	if h.task != nil {
		text = h.task.Name()
		if label := h.task.Label(); label != "" {
			text += " of " + label
		}
	}
	text += " (" + cmp.Or(h.pin.String(), "an open *sql.Conn, rows or a statement")
	if !h.since.IsZero() {
		text += ", " + ago(h.since)
	}
	if last := h.connector.outline(h.last); last != "" {
		text += ", last " + last
	}
	return text + ")"
}

func ago(t time.Time) string { return "for " + time.Since(t).Round(time.Millisecond).String() }

// lookForCycle ends the wait of the last waiter in a wait cycle in which nothing has
// moved for long. The pool's calls, by starving, do not overlap.
func (c *core) lookForCycle(waiters []waitgraph.Queued[*waiter]) {
	var found *waitgraph.Cycle
	victim := -1
	if snapshot := c.waitSnapshot(waiters); snapshot != nil {
		found, victim = snapshot.Find()
	}
	cycles := &c.starvation.cycles
	if cycles.Look(found, c.config.DeadlockAfter) && victim >= 0 {
		cycles.Broken()
		last := waiters[victim].Waiter
		last.cancel(&waitgraph.Error{Cycle: found, Advice: last.advice(c), Target: c.report.Target(), TooLarge: last.tooLarge})
	}
}

// waitSnapshot returns the holders and the waiters. It returns nil if a connection has no
// explicit task, runs a statement, or is in a function of Raw: its holder does not wait.
func (c *core) waitSnapshot(waiters []waitgraph.Queued[*waiter]) *waitgraph.Snapshot[*binding] {
	stats, all := c.pool.Stats(), c.pool.Conns()
	if len(waiters) == 0 || stats.Idle > 0 || len(all) != stats.Allowed || stats.Count != stats.Allowed || c.pool.Restoring() != 0 {
		return nil
	}
	s := &waitgraph.Snapshot[*binding]{At: time.Now(), Moves: stats.Moves}
	for _, q := range waiters {
		w := q.Waiter
		s.Waiters = append(s.Waiters, waitgraph.Waiter[*binding]{Number: q.Number, For: w.waitsFor(c), Victim: w.binding == nil || !w.binding.task.Implicit()})
	}
	for _, conn := range all {
		r := realOf(conn)
		b := r.holder.Load()
		if b == nil || !b.shares {
			return nil
		}
		s.Holders = append(s.Holders, waitgraph.Holder[*binding]{Who: b})
	}
	if found, _ := s.Find(); found == nil || !waits(s, all) {
		return nil // without a cycle no lock is taken
	}
	return s
}

// waits completes the snapshot with what is known under the locks. It reports whether no
// holder is at work.
func waits(s *waitgraph.Snapshot[*binding], all []*connpool.Conn) bool {
	for i, conn := range all {
		r := realOf(conn)
		b := r.tryPeek()
		if b == nil {
			return false
		}
		h := &s.Holders[i]
		idle := b == h.Who && r.use.raw == nil
		h.Operations, h.Name = r.use.ops, holder{h.Who.task, r.use.pin, r.use.since, h.Who.connector, r.Meter.Text()}
		b.endPeek(r)
		if !idle {
			return false
		}
	}
	return true
}

// waitsFor returns the bindings that cannot go on while w waits.
func (w *waiter) waitsFor(c *core) (who []*binding) {
	if w.binding != nil {
		who = append(who, w.binding)
	}
	for t := w.from; t != nil; t = t.From() {
		if b := c.bindingOf(t); b != nil {
			who = append(who, b)
		}
	}
	return who
}

// advice says what would have spared w the wait; w is nil for a caller without a task.
func (w *waiter) advice(c *core) string {
	if w == nil {
		return waitgraph.Situation{}.Advice()
	}
	return waitgraph.Situation{RowsTooLarge: w.tooLarge != nil, InTask: w.around(c)}.Advice()
}

// around reports whether a task around w, whose connection w does not use, shares one.
func (w *waiter) around(c *core) bool {
	for t := w.from; t != nil; t = t.From() {
		if b := c.bindingOf(t); b != nil && b.shares && b.held.Load() > 0 {
			return true
		}
	}
	return false
}

package pooldriver

import (
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
)

// A wait cycle is closed when every connection is held by a task that waits for one
// more. When nothing has moved for Config.DeadlockAfter, the waiter that closed it gets
// ErrDeadlock. In an implicit task nobody gets it: its program waits as over plain
// database/sql, and the error of its timeout names the holders. docs/adr/0008.

// holder is who has a connection.
type holder struct {
	task  *task.Task
	pin   pin
	since time.Time
}

func (h holder) String() string {
	text := h.task.Name() + " (" + pinNames[h.pin]
	if !h.since.IsZero() {
		text += ", " + ago(h.since)
	}
	return text + ")"
}

func ago(t time.Time) string { return "for " + time.Since(t).Round(time.Millisecond).String() }

// lookForCycle ends the wait of the last waiter in a wait cycle in which nothing has
// moved for long. The pool's calls, by starving, do not overlap.
func (c *Connector) lookForCycle(waiters []*waiter) {
	var found *waitgraph.Cycle
	victim := -1
	if snapshot := c.waitSnapshot(waiters); snapshot != nil {
		found, victim = snapshot.Find()
	}
	cycles := &c.starvation.cycles
	if cycles.Look(found, c.config.DeadlockAfter) && victim >= 0 {
		cycles.Broken()
		last := waiters[victim]
		last.cancel(&deadlockError{cycle: found, advice: last.advice(c), target: c.template.Target(), tooLarge: last.tooLarge})
	}
}

// waitSnapshot returns who holds and who waits; nil if somebody holds a connection who
// does not wait: nobody's task, a running statement, or a function of Raw.
func (c *Connector) waitSnapshot(waiters []*waiter) *waitgraph.Snapshot[*binding] {
	stats, all := c.pool.Stats(), c.connections()
	if len(waiters) == 0 || stats.Idle > 0 || len(all) != stats.Max || stats.Count != stats.Max || c.restoring.Load() != 0 {
		return nil
	}
	s := &waitgraph.Snapshot[*binding]{At: time.Now(), Moves: stats.Moves}
	for _, w := range waiters {
		s.Waiters = append(s.Waiters, waitgraph.Waiter[*binding]{Number: w.number, For: w.waitsFor(c), Victim: w.binding == nil || !w.binding.task.Implicit()})
	}
	for _, r := range all {
		b := r.holder.Load()
		if b == nil || b.isPrivate() {
			return nil
		}
		s.Holders = append(s.Holders, waitgraph.Holder[*binding]{Who: b})
	}
	if found, _ := s.Find(); found == nil {
		return nil // no lock is taken for that
	}
	for i, r := range all {
		if !r.TryLock() {
			return nil
		}
		h := &s.Holders[i]
		idle := r.holder.Load() == h.Who && r.use.raw == nil
		h.Operations, h.Name = r.use.ops, holder{h.Who.task, r.use.pin, r.use.since}
		r.unlockAndRecheck()
		if !idle {
			return nil
		}
	}
	return s
}

// waitsFor returns those who cannot go on while w waits.
func (w *waiter) waitsFor(c *Connector) (who []*binding) {
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

// advice is what would have spared w the wait; w is nil for who belongs to no task.
func (w *waiter) advice(c *Connector) string {
	spared := ""
	switch holder := w.around(c); {
	case w == nil:
	case w.tooLarge != nil:
		spared = "close the task's rows first, raise pool_nested_buffer"
	case holder == nil:
	case holder.ambient() != AmbientSeparate:
		spared = "run the statement in the task around it"
	case c.config.Ambient == AmbientSeparate:
		spared = "let the statement join the task's transaction (pool_ambient=join, InTx)"
	case w.binding != nil && !w.binding.task.Implicit():
		spared = "begin the transaction around it in a task that joins, too (httptask.Join, WithTask, InTx)"
	default:
		spared = "let the statement join the task's transaction (httptask.Join, WithTask, InTx)"
	}
	if spared == "" {
		spared = "end what holds them first"
	}
	return spared + ", or raise pool_max_conns"
}

// around is the task whose connection w did not go to.
func (w *waiter) around(c *Connector) *binding {
	if w == nil {
		return nil
	}
	if w.separate {
		return w.binding
	}
	for t := w.from; t != nil; t = t.From() {
		if b := c.bindingOf(t); b != nil && b.held.Load() > 0 {
			return b
		}
	}
	return nil
}

const inCycle = "every one is held by a task that waits for one more"

// deadlockError is the end of a wait that could have had no other.
type deadlockError struct {
	cycle          *waitgraph.Cycle
	target, advice string
	tooLarge       error
}

func (e *deadlockError) Error() string {
	text := fmt.Sprintf("pooldriver: no connection to %s: %s, and nothing moves any more; %s (%s)", e.target, inCycle, e.advice, e.cycle.Names())
	if e.tooLarge != nil {
		text += "; " + e.tooLarge.Error()
	}
	return text
}

func (e *deadlockError) Is(target error) bool { return target == ErrDeadlock }

func (e *deadlockError) Unwrap() error { return e.tooLarge }

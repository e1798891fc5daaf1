package pooldriver

import (
	"cmp"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/callsite"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// This file finds Holders, Waiters, CallSites and Tasks. It waits for no session's lock: a
// connection whose statement hangs has to be seen, too.

// holderList is Connector.Holders.
func (c *core) holderList() []Holder {
	held := c.holdings()
	all := make([]Holder, len(held))
	for i, h := range held {
		all[i] = h.holder(c)
	}
	return all
}

// waiters is Connector.Waiters.
func (c *core) waiters() []Waiter {
	queue := c.pool.Waiting()
	holds := c.holds()
	all := make([]Waiter, len(queue))
	for i, w := range queue {
		t, label := waiterOf(w)
		all[i] = Waiter{Position: i + 1, Since: w.Since, Deadline: w.Until, Label: label, Task: nameOf(t), Holds: holds[t]}
	}
	return all
}

// callSites is Connector.CallSites.
func (c *core) callSites() []CallSite {
	sites := c.usage.Sites.All()
	figures := make(map[*callsite.Site]callsite.Figures, len(sites))
	for _, s := range sites {
		figures[s] = s.Figures()
	}
	for _, h := range c.holdings() { // connections that are not given back count, too
		if f, ok := figures[h.Site]; ok {
			f.Held += h.heldFor * time.Duration(h.Weight)
			f.Idle += h.Idle * time.Duration(h.Weight)
			figures[h.Site] = f
		}
	}
	all := make([]CallSite, 0, len(sites))
	for s, f := range figures {
		all = append(all, CallSite{Stack: frames(s), Count: f.Count, Waited: f.Waited, Held: f.Held, IdlePinned: f.Idle})
	}
	slices.SortFunc(all, func(a, b CallSite) int {
		return cmp.Or(cmp.Compare(b.IdlePinned, a.IdlePinned), cmp.Compare(b.Held, a.Held), cmp.Compare(b.Count, a.Count))
	})
	return all
}

// tasks is Connector.Tasks.
func (c *core) tasks() []TaskState {
	holds, waits := c.holds(), map[*task.Task]int{}
	for _, w := range c.pool.Waiting() {
		if t, _ := waiterOf(w); t != nil {
			waits[t]++
		}
	}
	var all []TaskState
	add := func(t *task.Task) {
		all = append(all, TaskState{Name: t.Name(), Label: t.Label(), Implicit: t.Implicit(), Since: t.Begun(), Holds: holds[t], Waiting: waits[t]})
	}
	for t := range holds {
		if t != nil {
			add(t)
		}
	}
	for t := range waits {
		if _, ok := holds[t]; !ok {
			add(t)
		}
	}
	slices.SortFunc(all, func(a, b TaskState) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return all
}

// holding is a connection that somebody has.
type holding struct {
	usage.Look
	real    *realConn
	task    *task.Task // nil: none
	running bool
	heldFor time.Duration
	idleFor time.Duration // now; Look.Idle is the sum
}

// holdings returns the connections that have a holder, in the order in which they were
// taken.
func (c *core) holdings() (all []holding) {
	for r := range c.connections() {
		if h, ok := c.look(r); ok {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b holding) int { return cmp.Compare(a.Since, b.Since) })
	return all
}

// look returns the holder of r. ok is false if r has none. If r gets another holder
// meanwhile, look tries again. After the last try it leaves r out: no holder has had r for
// long.
func (c *core) look(r *realConn) (h holding, ok bool) {
	const tries = 3
	for range tries {
		b, checkout := r.holder.Load(), r.Meter.Checkout()
		if b == nil {
			return holding{}, false
		}
		if r.holder.Load() != b {
			continue
		}
		// attach stores the holder after the meter's Begin, and takeOutLocked takes it back. With
		// the same holder on both sides of its number, the checkout has begun completely. A
		// statement that ends while we look is shown as running.
		running := r.Locked()
		look, same := r.Meter.Look()
		running = running || r.Locked() || look.Pin == pinning.Raw
		if !same || look.Checkout != checkout {
			continue
		}
		now := c.usage.Clock.Fine()
		h = holding{Look: look, real: r, task: b.task, running: running}
		h.heldFor = time.Duration(max(0, now-look.Since))
		if !running {
			h.idleFor = min(time.Duration(max(0, now-look.Last)), h.heldFor)
			h.Idle = min(h.Idle+h.idleFor, h.heldFor)
		}
		return h, true
	}
	return holding{}, false
}

// holder is h for the program.
func (h *holding) holder(c *core) Holder {
	p := Holder{
		Conn:       h.real.Number,
		Since:      c.usage.Clock.Time(h.Since),
		Running:    h.running,
		Idle:       h.idleFor,
		IdlePinned: h.Idle,
		Pin:        Pin(h.Pin.String()),
		Statements: h.Operations,
		Statement:  c.outline(h.Text),
		Label:      textOf(h.Label),
		Task:       nameOf(h.task),
		TakenAt:    frames(h.Site),
	}
	if h.running && h.Pin == pinning.Conn {
		p.Pin = PinStatement
	}
	if h.Statement != nil {
		p.StatementAt = frames(h.Statement)
	}
	p.Host = h.real.Host()
	if s, ok := h.real.Server().(dialects.Identified); ok {
		p.ProcessID = s.ProcessID()
	}
	return p
}

// holds are the numbers of the connections that each task has. Those without a task are at
// nil.
func (c *core) holds() map[*task.Task][]uint64 {
	all := map[*task.Task][]uint64{}
	for _, h := range c.holdings() {
		if h.task != nil {
			all[h.task] = append(all[h.task], h.real.Number)
		}
	}
	return all
}

// waiterOf returns the task and the label of a waiter.
func waiterOf(w pool.Waiting) (t *task.Task, label string) {
	switch who := w.Who.(type) {
	case *string:
		return nil, textOf(who)
	case *binding:
		return who.task, who.task.Label()
	case *waiter:
		if who.binding != nil {
			t = who.binding.task
		}
		return t, textOf(who.label)
	}
	return nil, ""
}

// outline is a statement's text without literals; text may be nil.
func (c *core) outline(text *string) string {
	if text == nil {
		return ""
	}
	if o, ok := c.dialect.(dialects.Outliner); ok {
		return o.Outline(*text)
	}
	return generic.Dialect{}.Outline(*text)
}

// frames are the frames of a site's stack; s may be nil.
func frames(s *callsite.Site) []Frame {
	from := s.Frames()
	if from == nil {
		return nil
	}
	all := make([]Frame, len(from))
	for i, f := range from {
		all[i] = Frame(f)
	}
	return all
}

// holders says who has a connection, and why. Of one on which a statement is running nobody
// can tell more.
func (c *core) holders() (list []string) {
	for r := range c.connections() {
		b := r.holder.Load()
		if b == nil {
			continue
		}
		h := holder{task: b.task}
		if b.tryPeek(r) {
			if h.pin, h.since = r.use.pin, r.use.since; r.Begun() {
				h.pin = pinning.Tx
			}
			b.endPeek(r)
		}
		list = append(list, h.String())
	}
	return list
}

package pooldriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/observe/callsite"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Label returns a context that gives a name to the work that uses the context: a job, a route, a
// feature. The name is shown wherever a user of a connection is shown: in Holders, Waiters,
// errors, logs, and to an Observer. The innermost name counts. A program should have few names.
// A name must hold no secret. The httptask middleware gives each request a label. Connections and
// tasks keep the label of the context that took or began them. name is cut after 100 bytes.
func Label(ctx context.Context, name string) context.Context { return task.Label(ctx, name) }

// Holder describes who has one real connection at a moment.
type Holder struct {
	Conn      uint64 // number of the real connection in its Connector, from 1
	Host      string // the server, where the DSN names several or the connection is to a replica; else empty
	Replica   bool   // the connection is of the pool of a replica
	ProcessID uint64 // the server's number of the session (PostgreSQL, MySQL, MariaDB); 0: not known

	Since time.Time // when the connection was taken; up to 10 ms early
	// Running: a statement is running or, if rows are open, a row is being read, for RunningFor. If
	// Running is false, Idle is the time since a statement was last running. One of RunningFor and
	// Idle is 0. Both are up to 10 ms too long.
	Running    bool
	RunningFor time.Duration
	Idle       time.Duration
	// IdlePinned is the part of the time since Since in which no statement was running.
	IdlePinned time.Duration
	Pin        Pin
	Statements uint64 // operations so far, including one that is running
	// Following is how many queries come behind the present one in its pipeline (Config.Pipeline). Statement
	// and Label are of the query whose answer comes next: first of the leader, which has taken the
	// connection, then of each follower.
	Following int
	// Statement is the text of the last statement, without literals and comments, and cut
	// after 200 bytes.
	Statement string
	// Usual is StatementTime.Usual of this statement; 0: too few executions are known.
	Usual time.Duration
	Label string // see the function Label
	Task  string // the name of its task, as in errors; empty: none

	// TakenAt is the call stack that took the connection. StatementAt is the call stack of the
	// last statement in a transaction or another pin. A stack is empty if it was not sampled: see
	// Config.SampleStacks.
	TakenAt, StatementAt []Frame
}

// Frame is one call of a call stack. The innermost call comes first. Calls of database/sql and of
// this package that come before the program's calls are left out.
type Frame struct {
	Func string // with its package
	File string
	Line int
}

// BufferedRows are rows of a query that are in memory, because others needed their connection,
// and that the program has not closed yet. They hold memory, and no connection.
type BufferedRows struct {
	Since     time.Time // when their connection was taken from the pool; up to 10 ms early
	Statement string    // the query, without literals and comments, and cut after 200 bytes
	Label     string    // see the function Label
	Task      string    // the name of its task, as in errors; empty: none
	TakenAt   []Frame   // the call stack that took the connection; empty where it was not sampled
}

// Waiter describes who waits for a connection at a moment.
type Waiter struct {
	Position int       // in the queue, from 1; 0: it follows
	Replica  string    // the host of the replica for whose connection it waits; empty: it waits for one of the primary
	Follows  bool      // it is a query in the pipeline of another one, and waits for its answer
	Since    time.Time // when the waiting began
	Deadline time.Time // when the waiting ends without a connection; zero: never
	Label    string    // see the function Label
	Task     string    // the name of its task, as in errors; empty: none
	Holds    []uint64  // the connections that its task has already: see Holder.Conn
}

// CallSite is what one place of the program has done with connections, by the sampled checkouts:
// see Config.SampleStacks. Each sampled checkout counts for as many checkouts as it stands for,
// so the figures estimate all checkouts.
type CallSite struct {
	Stack      []Frame // the call stack that took the connections
	Count      uint64  // connections taken, those held now included, and pipelined queries
	Waited     time.Duration
	Held       time.Duration
	IdlePinned time.Duration // the part of Held in which no statement was running
}

// TaskState is a task that holds a connection, or waits for one, at a moment.
type TaskState struct {
	Name     string    // as in errors
	Label    string    // see the function Label
	Implicit bool      // of Config.TaskKey or httptask.Separate
	Since    time.Time // when its first statement began
	Holds    []uint64  // its connections: see Holder.Conn
	Waiting  int       // its statements that wait
}

// String is the function, and the file's name with the line.
func (f Frame) String() string {
	return callsite.Frame(f).String()
}

// Holders returns who has a connection now. The oldest holder comes first, those of each replica follow, and the
// connection of Listen, with PinListen, comes last. The call does not wait, and costs some microseconds for each connection.
func (c *Connector) Holders() []Holder {
	if c.err != nil {
		return nil
	}
	var all []Holder
	for host, e := range enginesOf(c) {
		held := e.Looks()
		all = slices.Grow(all, len(held))
		for i := range held {
			h := holderOf(&held[i], e)
			h.Host, h.Replica, h.Usual = cmp.Or(host, h.Host), host != "", e.Times().Usual(h.Statement)
			all = append(all, h)
		}
	}
	if h, ok := listenHolder(c.listens); ok {
		all = append(all, h)
	}
	return all
}

// holderOf describes a connection that somebody has, for the program.
func holderOf(l *binding.Look, e *binding.Engine) Holder {
	h := Holder{
		Conn:       l.Conn.Number,
		Host:       l.Conn.Host(),
		Since:      l.Taken,
		Running:    l.Running,
		RunningFor: l.RunsFor,
		Idle:       l.IdleFor,
		IdlePinned: l.Idle,
		Pin:        pinOf(l),
		Statements: l.Operations,
		Following:  l.Behind,
		Statement:  e.Outline(l.Text),
		Label:      usage.Text(l.Label),
		Task:       binding.NameOf(l.Task),
		TakenAt:    frames(l.Site),
		ProcessID:  dialects.ProcessID(l.Conn.Session.Server()),
	}
	if l.Statement != nil {
		h.StatementAt = frames(l.Statement)
	}
	return h
}

// BufferedRows returns the open rows whose connection was given to others, the oldest first. The call
// does not wait.
func (c *Connector) BufferedRows() []BufferedRows {
	if c.err != nil {
		return nil
	}
	var all []BufferedRows
	for _, e := range enginesOf(c) {
		for _, t := range e.BufferedRows() {
			all = append(all, BufferedRows{Since: t.At, Statement: e.Outline(t.Text), Label: usage.Text(t.Label), Task: binding.NameOf(t.Task), TakenAt: frames(t.Site)})
		}
	}
	return all
}

// Waiters returns who waits for a connection now, in the order of the queue, then those of each replica's queue, and
// behind them the queries that follow in pipelines. It takes the pool's lock several times, for about 10 µs each. The list may
// lack a waiter that comes or leaves during the call.
func (c *Connector) Waiters() []Waiter {
	if c.err != nil {
		return nil
	}
	holds := holds(c)
	var all, following []Waiter
	for host, e := range enginesOf(c) {
		position := 0
		for _, w := range e.Pool().Waiting() {
			t, label := binding.WaiterOf(w)
			one := Waiter{Follows: w.Follows, Replica: host, Since: w.Since, Deadline: w.Until, Label: label, Task: binding.NameOf(t), Holds: holds[t]}
			if w.Follows {
				following = append(following, one)
				continue
			}
			position++
			one.Position = position
			all = append(all, one)
		}
	}
	return append(all, following...)
}

// CallSites returns what the places of the program have done with connections since the Connector
// was made. What a place has done with connections of a replica is a CallSite of its own. The place with the most IdlePinned comes first. A Connector remembers 1000 places.
// All later places together are one CallSite without a stack.
func (c *Connector) CallSites() []CallSite {
	if c.err != nil {
		return nil
	}
	sites := c.usage.Sites.All()
	for _, r := range replicasOf(c) {
		sites = append(sites, r.Usage.Sites.All()...)
	}
	figures := make(map[*callsite.Site]callsite.Figures, len(sites))
	for _, s := range sites {
		figures[s] = s.Figures()
	}
	for _, e := range enginesOf(c) {
		for _, h := range e.Looks() { // connections that are not given back count, too
			if f, ok := figures[h.Site]; ok {
				f.Held += h.HeldFor * time.Duration(h.Weight)
				f.Idle += h.Idle * time.Duration(h.Weight)
				figures[h.Site] = f
			}
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

// StatementTime is how long the executions of a statement take until their answer, as far as they were timed: see Histogram.
type StatementTime struct {
	Statement string // without literals and comments, and cut after 200 bytes
	Runs      uint64 // how many were timed
	// Usual is the time that nine of ten executions took at most, a bucket's bound; 0: too few are known. Those count that are older
	// than five minutes or, if they are too few, all. Executions in a second in which statements waited or got no connection
	// never count. Half of the last nine took Lately or longer; the last one has ended at Last.
	Usual, Lately time.Duration
	Last          time.Time
}

// Statements returns the statements that have ended since a time, those that have taken longest lately first.
func (c *Connector) Statements(since time.Time) (all []StatementTime) {
	if c.err != nil {
		return nil
	}
	clock := c.usage.Clock
	for _, e := range enginesOf(c) {
		e.Times().Each(clock.Of(since), func(statement string, t *usage.Time, at int64) {
			all = append(all, StatementTime{statement, t.Runs(), t.Usual(), t.Lately(), clock.Time(at)})
		})
	}
	slices.SortFunc(all, func(a, b StatementTime) int { return cmp.Compare(b.Lately, a.Lately) })
	return all
}

// Tasks returns the tasks that hold a connection or wait for one now, the oldest first.
func (c *Connector) Tasks() []TaskState {
	if c.err != nil {
		return nil
	}
	holds, waits := holds(c), map[*task.Task]int{}
	for _, e := range enginesOf(c) {
		for _, w := range e.Pool().Waiting() {
			if t, _ := binding.WaiterOf(w); t != nil {
				waits[t]++
			}
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

// holds returns the numbers of the connections that each task has. Connections without a task are
// left out.
func holds(c *Connector) map[*task.Task][]uint64 {
	all := map[*task.Task][]uint64{}
	for _, e := range enginesOf(c) {
		for _, h := range e.Looks() {
			if h.Task != nil {
				all[h.Task] = append(all[h.Task], h.Conn.Number)
			}
		}
	}
	return all
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

// namedHolders is how many holders an error names.
const namedHolders = 3

// heldBy names, for an error, who has held connections longest.
func heldBy(e *binding.Engine, c *Config) string {
	all := e.Looks()
	var names []string
	for i := range all[:min(len(all), namedHolders)] {
		h := holderOf(&all[i], e)
		names = append(names, h.name(all[i].HeldFor))
	}
	if len(names) == 0 {
		return ""
	}
	text := "; held longest by " + strings.Join(names, ", ")
	if e.RowsTooLarge() {
		text += fmt.Sprintf("; rows that are open are larger than what may be read into memory to free their connection (pool_nested_buffer=%d bytes, pool_nested_buffer_total=%d)", c.NestedBuffer, c.NestedBufferTotal)
	}
	return text
}

// holderNames says, for Drain's error, who has a connection, and what to do.
func holderNames(e *binding.Engine) []string {
	all := e.Looks()
	names := make([]string, len(all))
	for i := range all {
		h := holderOf(&all[i], e)
		names[i] = h.name(all[i].HeldFor) + ": " + advice(h.Pin, h.Task)
	}
	return names
}

// name says who holds a connection, as far as that is known, and how.
func (h *Holder) name(held time.Duration) string {
	who := h.Task
	switch {
	case h.Label != "" && who != "":
		who += " of " + h.Label
	case h.Label != "":
		who = h.Label
	case who == "":
		who = "a checkout"
	}
	if len(h.TakenAt) > 0 {
		who += " at " + h.TakenAt[0].String()
	}
	text := fmt.Sprintf("%s (%s, for %v", who, h.Pin, rounded(held))
	if !h.Running {
		text += fmt.Sprintf(", idle for %v", rounded(h.Idle))
	}
	if h.Statement != "" {
		text += ", last " + h.Statement
	}
	return text + ")"
}

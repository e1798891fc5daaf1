package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/relay"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// This file helps a statement that waits long for a connection. The pool calls starving every
// pool.DefaultStarveAfter, while its first waiter has waited for at least as long.
//
// If a connection is held by nothing but open rows, the rows are read into memory and the
// connection serves the queue. (A statement that waits because all connections of its task were
// busy gets one from its binding: Seat.unlock.) If every connection is held by a task that itself waits
// for one more, that is a wait cycle.

const (
	// reclaimPatience bounds the reading of rows that are taken back.
	reclaimPatience = time.Second
	// readerPatience is how long one reader may read the same rows ahead alone. Then
	// another reader begins with other rows, because the server may be slow with the
	// first.
	readerPatience = 50 * time.Millisecond
)

// errHandedOver ends the wait of a waiter that has got a connection of its task.
var errHandedOver = errors.New("pooldriver: a connection of the task was handed over")

// waiter is a statement that waits for a connection. Its task may hold a connection, or a task
// from whose context the statement's context was derived.
type waiter struct {
	engine   *Engine
	binding  *Binding // nil without a task
	label    *string  // nil: none
	from     *task.Task
	priority pool.Priority
	tooLarge error // why rows of the task stay open
	// given is a seat of the task that unlock has handed over, with its lock, and counted. The
	// binding's mu protects it until the wait has ended with errHandedOver.
	given *Seat

	around context.Context // the statement's
	ctx    context.Context // ends with around, and by cancel
	cancel context.CancelCauseFunc
}

// newWaiter makes the waiter of a statement with this context. Its cancel has to be called.
func newWaiter(ctx context.Context, e *Engine) *waiter {
	w := &waiter{engine: e, around: ctx}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// takeHandedSeat takes the seat that was handed to w; nil: none was.
func (w *waiter) takeHandedSeat() *Seat {
	s := w.given
	w.given = nil
	return s
}

// starvation is what an engine knows of waiters.
type starvation struct {
	engine  *Engine
	cycles  waitgraph.Watch
	readers relay.Relay // goroutines that read rows ahead

	mu       sync.Mutex                     // protects the following field
	buffered map[*session.Rows]BufferedRows // open rows whose connection was taken back
}

// BufferedRows describes open rows that are in memory, because their connection was taken back.
type BufferedRows struct {
	usage.Look            // of their checkout, when it lost the connection
	Task       *task.Task // nil: none
	At         time.Time  // when the checkout had taken the connection
	whole      bool       // the rows are in memory
}

// remember notes rows that are about to be read into memory. r is their connection, which is locked.
func (s *starvation) remember(rows *session.Rows, r *connpool.Conn, b *Binding) {
	look, _ := r.Meter.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffered == nil {
		s.buffered = map[*session.Rows]BufferedRows{}
	}
	s.buffered[rows] = BufferedRows{Look: look, Task: b.task, At: s.engine.usage.Clock.Time(look.Since)}
}

// confirm says that the rows which remember has noted are in memory. Their owner may have closed
// them since.
func (s *starvation) confirm(rows *session.Rows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.buffered[rows]; ok {
		t.whole = true
		s.buffered[rows] = t
	}
}

// forget ends what remember began, if it did: the rows are closed.
func (s *starvation) forget(rows *session.Rows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buffered, rows)
}

// starving is the pool's hook Config.Starving.
func (s *starvation) starving(waiting int) {
	if now := s.engine.pool.Stats(); now.Count >= now.Allowed { // otherwise the waiters wait for a dial
		s.reclaim(waiting - now.Creating)
	}
	waiters := s.engine.group.waiters.All()
	for _, q := range waiters {
		// Rows were too large for the memory that others had left.
		if w := q.Waiter; w.tooLarge != nil {
			w.binding.offer()
		}
	}
	s.lookForCycle(waiters)
}

// reclaim takes back up to wanted connections. Rows are read ahead one after the other and in
// steps. Nobody knows how many rows a query has left. Short results must be found before long
// results fill the memory.
func (s *starvation) reclaim(wanted int) {
	if wanted <= 0 || s.readers.Busy(readerPatience) {
		return
	}
	if held, rows := s.leastRead(); held != nil {
		go s.readOthers(s.readers.Begin(), held, rows, wanted)
	}
}

// readOthers is what a reader does. It begins with rows and owns the lock of held.
func (s *starvation) readOthers(me *relay.Runner, held *Seat, rows *session.Rows, wanted int) {
	defer me.End()
	for held != nil {
		if s.takeRows(held, rows) {
			wanted--
		}
		if wanted <= 0 || s.engine.pool.Stats().Waiting == 0 || !me.Last() {
			return
		}
		me.Next()
		held, rows = s.leastRead()
	}
}

// leastRead returns the rows of which the least was read ahead so far, and their
// seat, which it has locked. nil: no rows may be read. So large rows come last.
func (s *starvation) leastRead() (*Seat, *session.Rows) {
	if s.engine.report.Buffered.Load() > s.engine.config.NestedBufferOthers {
		return nil, nil
	}
	var least *connpool.Conn
	tried := int64(math.MaxInt64)
	for r := range s.engine.connections() {
		if r.Session.Rows() == nil {
			continue
		}
		if held, rows := tryReclaim(r); rows != nil {
			if rows.Tried() < tried {
				least, tried = r, rows.Tried()
			}
			held.unlock(none)
		}
	}
	if least == nil {
		return nil, nil
	}
	return tryReclaim(least)
}

// tryReclaim locks the seat of r, if only its rows hold r. It returns the seat and the rows; nil: it has
// done nothing.
func tryReclaim(r *connpool.Conn) (*Seat, *session.Rows) {
	s := seatOf(r)
	if !s.tryLook(r) {
		return nil, nil
	}
	b, rows := s.binding.Load(), r.Session.Rows()
	if rows == nil || !rows.Reclaimable() || !b.isOnlyClaim(s) || s.raw != nil || b.ended.Load() {
		s.unlock(none)
		return nil, nil
	}
	return s, rows
}

// takeRows reads more of the rows into memory. If no rows are left to read, it gives their
// connection back. It is called with the lock of held, and unlocks.
func (s *starvation) takeRows(held *Seat, rows *session.Rows) (taken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimPatience)
	defer cancel()
	b, r := held.binding.Load(), held.conn.Load()
	var panicked any
	defer func() { // without the lock: the logger may need a connection
		if panicked != nil {
			s.engine.report.DriverPanicked("while rows were read into memory for a statement that waits for a connection; the connection of the rows is closed when it comes back", panicked)
		}
	}()
	defer held.unlock(none)
	defer func() {
		if panicked = recover(); panicked != nil { // inspect sees in r.Calls that a call has not returned
			rows.SkipReadAhead()
			s.forget(rows)
		}
	}()
	s.remember(rows, r, b) // before their owner can see that they are in memory, and close them
	if !rows.ReadMore(ctx) {
		s.forget(rows)
		return false
	}
	s.confirm(rows)
	held.countOperation()
	s.engine.report.Reclaims.Add(1)
	return true
}

// makeWay reads into memory the rows that are open on other connections than r: under
// Traits.RowsBlockWrites they block a write on r. Rows that have no room, or that nobody may take back,
// stay open.
func (s *starvation) makeWay(r *connpool.Conn) {
	for other := range s.engine.connections() {
		if other == r || other.Session.Rows() == nil {
			continue
		}
		for tried := int64(-1); ; {
			held, rows := tryReclaim(other)
			if rows == nil {
				break
			}
			if rows.Tried() == tried {
				held.unlock(none)
				break
			}
			if tried = rows.Tried(); s.takeRows(held, rows) {
				break
			}
		}
	}
}

// timeout is the error of a caller that got no connection because of err, if it has waited in a
// closed wait cycle; nil: it has not. w is nil for a caller without a task.
func (s *starvation) timeout(err error, w *waiter) error {
	a, ok := errors.AsType[*pool.AcquireError](err)
	if !ok || !a.Timeout() || a.Waited <= 0 {
		return nil
	}
	found := s.cycles.Around(a.Waited)
	if found == nil {
		return nil
	}
	r := s.engine.report
	r.AcquireFailed(report.Timeout)
	a.Cause = ctxerr.Harmless(a.Cause) // a is this caller's own
	return fmt.Errorf("pooldriver: no connection to %s: %s; %s: %w (held by %s)", r.Target(), waitgraph.InCycle, s.advice(w), err, found.Names())
}

// A wait cycle is closed when every connection is held by a task that waits for one
// more. When nothing has moved for Config.DeadlockAfter, the waiter that closed it gets
// ErrDeadlock. A statement of an implicit task never gets it: the program waits as over plain
// database/sql, and the error of its timeout names the holders. docs/adr/0008.

// holder is what has a connection: a task or, if task is nil, a checkout that belongs to no task.
type holder struct {
	task    *task.Task
	pin     pinning.Pin // why the connection is held; None: an operation uses it, and nothing else
	since   time.Time
	dialect dialects.Dialect
	last    *string // statement; nil: none
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
	if last := connpool.Outline(h.dialect, h.last); last != "" {
		text += ", last " + last
	}
	return text + ")"
}

func ago(t time.Time) string { return "for " + time.Since(t).Round(time.Millisecond).String() }

// lookForCycle ends the wait of the last waiter in a wait cycle in which nothing has moved for
// long. The pool's calls of starving do not overlap. If a cycle leads through several pools, each of them may
// look: all find the same waiter.
func (s *starvation) lookForCycle(waiters []waitgraph.Queued[*waiter]) {
	var found *waitgraph.Cycle
	var victim uint64
	if snapshot := s.engine.group.snapshot(waiters); snapshot != nil {
		found, victim = snapshot.Find()
	}
	if !s.cycles.Look(found, s.engine.config.DeadlockAfter) {
		return
	}
	for _, q := range waiters {
		if q.Number == victim {
			s.cycles.Broken()
			last := q.Waiter
			last.cancel(&waitgraph.Error{Cycle: found, Advice: s.advice(last), Target: last.engine.report.Target(), TooLarge: last.tooLarge})
		}
	}
}

// lending is a connection of a wait cycle, with its holder.
type lending struct {
	waitgraph.Holder[*task.Task]
	conn *connpool.Conn
}

// snapshot returns the holders and the waiters of a wait cycle. It returns nil if there is none.
func (g *group) snapshot(waiters []waitgraph.Queued[*waiter]) *waitgraph.Snapshot[*task.Task] {
	if len(waiters) == 0 {
		return nil
	}
	now := &waitgraph.Snapshot[*task.Task]{At: time.Now()}
	var all []lending
	for i, e := range g.engines {
		lent, moves := exhausted(e, i)
		now.Moves, all = append(now.Moves, moves), append(all, lent...)
	}
	for _, l := range all {
		now.Holders = append(now.Holders, l.Holder)
	}
	for _, q := range waiters {
		w := q.Waiter
		now.Waiters = append(now.Waiters, waitgraph.Waiter[*task.Task]{Number: q.Number, Pool: slices.Index(g.engines, w.engine),
			For: w.waitsFor(), Victim: w.binding == nil || !w.binding.task.Implicit()})
	}
	found, _ := now.Find()
	if found == nil {
		return nil // most often there is no cycle, and no lock was taken
	}
	now.Holders = now.Holders[:0]
	for _, l := range all {
		if !found.Has(l.Pool) {
			continue
		}
		if !g.waits(&l, found) {
			return nil
		}
		now.Holders = append(now.Holders, l.Holder)
	}
	return now
}

// exhausted returns the connections of e, which is the pool with this number, if each holder may wait. It returns none
// if a connection can be had, or one has no explicit task: its holder does not wait.
func exhausted(e *Engine, pool int) (all []lending, moves uint64) {
	stats, conns := e.pool.Stats(), e.pool.Conns()
	if stats.Idle > 0 || len(conns) != stats.Allowed || stats.Count != stats.Allowed || e.pool.Restoring() != 0 {
		return nil, 0
	}
	for _, r := range conns {
		held := seatOf(r)
		if held == nil || !held.Has(r) {
			return nil, 0
		}
		b := held.binding.Load()
		if !b.shares {
			return nil, 0
		}
		all = append(all, lending{waitgraph.Holder[*task.Task]{Who: b.task, Pool: pool}, r})
	}
	return all, stats.Moves
}

// waits completes l, which is in a cycle, with what is known under the lock. It reports whether the holder
// is not at work: the connection runs no statement, no function of Raw has it, and the holder has no connection beside the cycle.
func (g *group) waits(l *lending, in *waitgraph.Cycle) bool {
	held := seatOf(l.conn)
	if !held.tryLook(l.conn) {
		return false
	}
	idle := held.binding.Load().task == l.Who && held.raw == nil
	l.Operations, l.Name = held.moves, holder{l.Who, held.pin, held.since, g.engines[l.Pool].config.Dialect, l.conn.Meter.Text()}
	held.unlock(none)
	for i, e := range g.engines {
		if b := e.bindingOf(l.Who); idle && b != nil && !in.Has(i) {
			idle = !b.hasAny()
		}
	}
	return idle
}

// waitsFor returns the tasks that cannot go on while w waits.
func (w *waiter) waitsFor() (who []*task.Task) {
	if w.binding != nil {
		who = append(who, w.binding.task)
	}
	for t := w.from; t != nil; t = t.From() {
		who = append(who, t)
	}
	return who
}

// advice says what would have avoided the wait of w; w is nil for a caller without a task.
func (s *starvation) advice(w *waiter) string {
	if w == nil {
		return waitgraph.Situation{}.Advice()
	}
	return waitgraph.Situation{RowsTooLarge: w.tooLarge != nil, InTask: w.isInTask(s.engine)}.Advice()
}

// isInTask reports whether a task around w has connections to share. w does not use them.
func (w *waiter) isInTask(e *Engine) bool {
	for t := w.from; t != nil; t = t.From() {
		if b := e.bindingOf(t); b != nil && b.shares && b.held.Load() > 0 {
			return true
		}
	}
	return false
}

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/pool"
)

// What is done when somebody has waited long for a connection. The pool calls
// starving every starveAfter while its first waiter has waited that long.
//
// Rows that are open, and nothing else, can be read into memory; their
// connection then serves the queue. A statement whose task holds connections
// was queued because all of them were busy; when one is not any more, it uses
// that one. And where every connection is held by a task that itself waits for
// one more, nobody would ever go on: the one that came last gets an error.

const (
	starveAfter = 20 * time.Millisecond
	// reclaimPatience bounds the reading of rows that are taken back.
	reclaimPatience = time.Second
	// circleAfter is how long nothing at all may have moved before a circle is
	// taken for closed. A task that holds a connection may be doing something
	// else, and need no other.
	circleAfter = 200 * time.Millisecond
)

// errOwnIsFree sends a waiter back to its task's own connections.
var errOwnIsFree = errors.New("pooldriver: a connection of the task is free")

// watcher is a statement that waits for a connection while its task, or one that
// its context was derived from, may hold one.
type watcher struct {
	binding  *binding // nil without a task
	from     *task
	apart    bool
	tooLarge error // why rows of the task stay open
	since    time.Time
	cancel   context.CancelCauseFunc
}

// starvation is what a connector knows of those who wait.
type starvation struct {
	mu       sync.Mutex // protects following fields
	watchers []*watcher // in the order in which they came

	// Of the pool's calls, which do not overlap.
	moves   uint64
	stillAt time.Time // zero: something has moved
}

// acquire takes a connection from the pool. from is a task that the statement's
// context was derived from, if any.
func (c *Connector) acquire(ctx context.Context, from *task) (lease pool.Lease[*realConn], err error) {
	if from == nil {
		lease, err = c.pool.Acquire(ctx)
	} else if lease, err = c.pool.AcquireNow(ctx); err == pool.ErrNoneNow {
		return c.await(ctx, &watcher{from: from})
	}
	if err != nil {
		return lease, c.acquireError(err)
	}
	return lease, nil
}

// await queues for a connection, while starving looks after the one who waits.
func (c *Connector) await(ctx context.Context, w *watcher) (pool.Lease[*realConn], error) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.cancel, w.since = cancel, time.Now()
	s := &c.starvation
	s.mu.Lock()
	s.watchers = append(s.watchers, w)
	s.mu.Unlock()
	lease, err := c.pool.Acquire(watched)
	s.mu.Lock()
	s.watchers = slices.DeleteFunc(s.watchers, func(other *watcher) bool { return other == w })
	s.mu.Unlock()
	if err == nil {
		return lease, nil
	}
	if ctx.Err() == nil && watched.Err() != nil {
		return lease, context.Cause(watched)
	}
	err = c.acquireError(err)
	if w.tooLarge != nil {
		err = fmt.Errorf("%w; rows that the task has open could not be read into memory instead: %w", err, w.tooLarge)
	}
	return lease, err
}

// starving is the pool's hook.
func (c *Connector) starving(waiting int) {
	if s := c.pool.Stats(); s.Count >= s.Max { // otherwise a dial is what they wait for
		c.reclaim(waiting - s.Creating)
	}
	s := &c.starvation
	s.mu.Lock()
	watchers := slices.Clone(s.watchers)
	s.mu.Unlock()
	if len(watchers) == 0 {
		s.stillAt = time.Time{}
		return
	}
	for _, w := range watchers {
		if w.binding != nil && !w.apart && w.binding.hasFree() {
			w.cancel(errOwnIsFree)
		}
	}
	c.breakCircle(watchers)
}

// reclaim takes back as many connections as can be, and are wanted.
func (c *Connector) reclaim(wanted int) {
	for _, r := range c.connections() {
		if wanted <= 0 {
			return
		}
		if r.live.Load() == nil || !r.turn.try() {
			continue
		}
		if rows := r.live.Load(); rows.reclaimable() {
			wanted--
			go c.takeRows(r, rows)
			continue
		}
		r.passTurn()
	}
}

// reclaimable reports, under the turn, whether nothing but these rows holds
// their connection.
func (r *rows) reclaimable() bool {
	if r == nil || !r.virgin || r.tooMuch || r.owner.broken {
		return false
	}
	if r.bound == nil {
		return true
	}
	s := &r.owner.seat
	return s.users == 1 && s.pin == pinNone && s.raw == nil && !r.bound.ended.Load()
}

// takeRows reads the rows into memory and gives their connection back. It has
// the turn.
func (c *Connector) takeRows(r *realConn, rows *rows) {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimPatience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // r.running tells inspect
			c.log.Error("pooldriver: the driver panicked when rows were read ahead", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
			rows.tooMuch = true
			r.passTurn()
		}
	}()
	if rows.readAhead(ctx, c) != nil {
		rows.tooMuch = true // the next one is tried
		r.passTurn()
		return
	}
	c.stats.reclaims.Add(1)
	if b := rows.bound; b != nil {
		r.seat.users--
		b.pass(r)
		return
	}
	r.turn.pass()
	c.takeBack(r)
}

// hasFree reports whether the binding has a connection that nothing runs on.
func (b *binding) hasFree() bool {
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b || !r.turn.try() {
			continue
		}
		rows := r.live.Load()
		free := b.maySend(r) && (rows == nil || !rows.tooMuch)
		r.passTurn()
		if free {
			return true
		}
	}
	return false
}

// breakCircle fails the last of the watchers if every connection is held by a
// task that one of them belongs to, and nothing has moved for a while.
func (c *Connector) breakCircle(watchers []*watcher) {
	s := &c.starvation
	waits := make(map[*binding]bool)
	var last *watcher
	for _, w := range watchers {
		if time.Since(w.since) < circleAfter {
			continue
		}
		if c.holds(w, waits) {
			last = w
		}
	}
	holders, moves, closed := c.circle(waits)
	if last == nil || !closed || moves != s.moves || s.stillAt.IsZero() {
		s.moves, s.stillAt = moves, time.Now()
		if !closed {
			s.stillAt = time.Time{}
		}
		return
	}
	if time.Since(s.stillAt) < circleAfter {
		return
	}
	s.stillAt = time.Time{}
	last.cancel(&deadlockError{max: len(holders), target: c.template.Target(), holders: holders, tooLarge: last.tooLarge})
}

// holds adds the bindings that wait for w to waits, and reports whether there
// are any that hold something.
func (c *Connector) holds(w *watcher, waits map[*binding]bool) (any bool) {
	add := func(b *binding) {
		if b == nil {
			return
		}
		for _, r := range c.connections() {
			if r.holder.Load() == b {
				waits[b], any = true, true
				return
			}
		}
	}
	add(w.binding)
	for t := w.from; t != nil; t = t.from {
		add(t.bindingOn(c))
	}
	return any
}

// bindingOn returns what t has on c, if anything.
func (t *task) bindingOn(c *Connector) *binding {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == nil {
		return nil
	}
	return t.life.on(c)
}

// circle looks at all connections: who holds them, how much has happened on
// them, and whether each is idle in the hands of somebody who waits.
func (c *Connector) circle(waits map[*binding]bool) (holders []string, moves uint64, closed bool) {
	stats := c.pool.Stats()
	moves = stats.Moves
	all := c.connections()
	closed = stats.Idle == 0 && len(all) == stats.Max && stats.Count == stats.Max && c.restoring.Load() == 0
	for _, r := range all {
		b := r.holder.Load()
		if b == nil || !waits[b] || !r.turn.try() {
			return nil, moves, false
		}
		closed = closed && r.holder.Load() == b && r.seat.raw == nil
		moves += r.seat.ops
		if closed {
			holders = append(holders, fmt.Sprintf("%s (%s%s)", b.task.name(), pinNames[r.seat.pin], since(r.seat.since)))
		}
		r.passTurn()
	}
	return holders, moves, closed
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", " + ago(t)
}

func ago(t time.Time) string { return "for " + time.Since(t).Round(time.Millisecond).String() }

// deadlockError is the end of a wait that could have had no other.
type deadlockError struct {
	max      int
	target   string
	holders  []string
	tooLarge error
}

func (e *deadlockError) Error() string {
	const most = 10
	holders := e.holders
	more := ""
	if len(holders) > most {
		more = fmt.Sprintf(" and %d more", len(holders)-most)
		holders = holders[:most]
	}
	text := fmt.Sprintf("pooldriver: no connection to %s: each of the %d that may be open is held by a task that waits for one more: %s%s; end what holds them first, run the statement in the task itself, or raise pool_max_conns", e.target, e.max, strings.Join(holders, ", "), more)
	if e.tooLarge != nil {
		text += "; " + e.tooLarge.Error()
	}
	return text
}

func (e *deadlockError) Is(target error) bool { return target == ErrDeadlock }

func (e *deadlockError) Unwrap() error { return e.tooLarge }

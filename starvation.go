package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// What is done when somebody has waited long for a connection. The pool calls
// starving every starveAfter while its first waiter has waited that long.
//
// Rows that are open, and nothing else, can be read into memory; their
// connection then serves the queue. A statement whose task holds connections
// was queued because all of them were busy; when one is not any more, it uses
// that one. Where every connection is held by a task that itself waits for
// one more: waitcycle.go.

const (
	starveAfter = 20 * time.Millisecond
	// reclaimPatience bounds the reading of rows that are taken back.
	reclaimPatience = time.Second
	// readerPatience is how long rows may be read ahead alone: then another reader
	// begins beside, for a server that is slow to give rows must not keep those of
	// others from being tried.
	readerPatience = 50 * time.Millisecond
	// firstStep is how much of rows is read ahead at first, in bytes.
	firstStep = 256 << 10
)

// errOwnIsFree sends a waiter back to its task's own connections.
var errOwnIsFree = errors.New("pooldriver: a connection of the task is free")

// waiter is a statement that waits for a connection while its task, or one that
// its context was derived from, may hold one.
type waiter struct {
	binding  *binding // nil without a task
	from     *task.Task
	separate bool
	tooLarge error // why rows of the task stay open
	number   uint64
	cancel   context.CancelCauseFunc
}

// starvation is what a connector knows of those who wait.
type starvation struct {
	mu      sync.Mutex // protects following fields
	waiters []*waiter  // in the order in which they came
	numbers uint64     // given to them

	cycles waitgraph.Watch

	reader atomic.Pointer[reader] // the last that has begun; nil: it has ended
}

// reader reads rows ahead for those who wait.
type reader struct {
	since atomic.Int64 // when it began with the rows that it is at
}

func (r *reader) begin() { r.since.Store(time.Now().UnixNano()) }

func (r *reader) patient() bool {
	return r != nil && time.Since(time.Unix(0, r.since.Load())) < readerPatience
}

// acquire takes a connection from the pool. from is a task that the statement's
// context was derived from, if any.
func (c *Connector) acquire(ctx context.Context, from *task.Task) (lease pool.Lease[*realConn], err error) {
	if from == nil {
		lease, err = c.pool.Acquire(ctx)
	} else if lease, err = c.pool.AcquireNow(ctx); err == pool.ErrNoneNow {
		return c.await(ctx, &waiter{from: from})
	}
	if err != nil {
		return lease, c.acquireError(err, nil)
	}
	return lease, c.broughtUp(ctx, lease)
}

// await queues for a connection, while starving looks after the one who waits.
func (c *Connector) await(ctx context.Context, w *waiter) (pool.Lease[*realConn], error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.cancel = cancel
	s := &c.starvation
	s.mu.Lock()
	s.numbers++
	w.number = s.numbers
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	lease, err := c.pool.Acquire(waiting)
	s.mu.Lock()
	s.waiters = slices.DeleteFunc(s.waiters, func(other *waiter) bool { return other == w })
	s.mu.Unlock()
	if err == nil {
		return lease, c.broughtUp(ctx, lease)
	}
	if ctx.Err() == nil && waiting.Err() != nil {
		return lease, context.Cause(waiting)
	}
	err = c.acquireError(err, w)
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
	waiters := slices.Clone(s.waiters)
	s.mu.Unlock()
	for _, w := range waiters {
		if w.binding != nil && !w.separate && w.binding.hasFree() {
			w.cancel(errOwnIsFree)
		}
	}
	c.lookForCycle(waiters)
}

// reclaim takes back as many connections as can be, and are wanted. Rows are read
// ahead one after the other, and in steps: how much is left of them nobody knows, and
// what ends soon must be found before memory is full of what does not.
func (c *Connector) reclaim(wanted int) {
	if wanted <= 0 || c.starvation.reader.Load().patient() {
		return
	}
	r, rows := c.leastRead()
	if r == nil {
		return
	}
	me := new(reader)
	me.begin()
	c.starvation.reader.Store(me)
	go c.readOthers(me, r, rows, wanted)
}

// readOthers is what a reader does. It begins with rows, and has the lock of r.
func (c *Connector) readOthers(me *reader, r *realConn, rows *rows, wanted int) {
	defer c.starvation.reader.CompareAndSwap(me, nil)
	for r != nil {
		if c.takeRows(r, rows) {
			wanted--
		}
		if wanted <= 0 || c.pool.Stats().Waiting == 0 || c.starvation.reader.Load() != me {
			return
		}
		me.begin()
		r, rows = c.leastRead()
	}
}

// leastRead returns, with its lock, the connection of the rows of which the least was
// read ahead so far; nil: none may be read. What turns out large falls behind by that.
func (c *Connector) leastRead() (*realConn, *rows) {
	if c.stats.buffered.Load() > c.mostForOthers() {
		return nil, nil
	}
	var least *realConn
	tried := int64(math.MaxInt64)
	for _, r := range c.connections() {
		if r.live.Load() == nil || !r.lock.TryLock() {
			continue
		}
		if rows := r.live.Load(); rows.reclaimable() && rows.tried < tried {
			least, tried = r, rows.tried
		}
		r.unlock()
	}
	if least == nil || !least.lock.TryLock() {
		return nil, nil
	}
	if rows := least.live.Load(); rows.reclaimable() {
		return least, rows
	}
	least.unlock()
	return nil, nil
}

// reclaimable reports, under the lock, whether nothing but these rows holds
// their connection.
func (r *rows) reclaimable() bool {
	if r == nil || !r.soleOperation || r.tooMuch || r.owner.broken {
		return false
	}
	if r.bound == nil {
		return true
	}
	s := &r.owner.seat
	return s.users == 1 && s.pin == pinNone && s.raw == nil && !r.bound.ended.Load()
}

// takeRows reads more of the rows into memory, twice as much as last time, and gives
// their connection back if that was all. It holds the lock.
func (c *Connector) takeRows(r *realConn, rows *rows) (taken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimPatience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // r.running tells inspect
			rows.tooMuch = true
			r.unlock()
			c.log.Error("pooldriver: the driver panicked when rows were read ahead", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
		}
	}()
	if err := rows.readTo(ctx, c, bounds{max(firstStep, 2*rows.tried), c.mostForOthers()}); err != nil {
		var full *noRoomError
		if err != errMoreIsLeft && !errors.As(err, &full) || rows.tried > c.config.NestedBuffer {
			rows.tooMuch = true // not tried again
		}
		r.unlock()
		return false
	}
	c.stats.reclaims.Add(1)
	if b := rows.bound; b != nil {
		r.seat.users--
		b.pass(r)
		return true
	}
	r.lock.Unlock()
	c.takeBack(r)
	return true
}

// hasFree reports whether the binding has a connection that nothing runs on.
func (b *binding) hasFree() bool {
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b || !r.lock.TryLock() {
			continue
		}
		rows := r.live.Load()
		free := b.maySend(r) && (rows == nil || !rows.tooMuch && b.connector.stats.buffered.Load() <= b.connector.most())
		r.unlock()
		if free {
			return true
		}
	}
	return false
}

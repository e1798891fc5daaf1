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

	"github.com/pooldriver/pooldriver/internal/session"
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
func (c *Connector) readOthers(me *reader, r *realConn, rows *session.Rows, wanted int) {
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

// leastRead returns, with its lock, the connection of the rows of which the least was read
// ahead so far; nil: none may be read. What turns out large falls behind by that.
func (c *Connector) leastRead() (*realConn, *session.Rows) {
	if c.stats.buffered.Load() > c.env.BufferOthers {
		return nil, nil
	}
	var least *realConn
	tried := int64(math.MaxInt64)
	for _, r := range c.connections() {
		if r.Rows() == nil || !r.TryLock() {
			continue
		}
		if rows := r.reclaimable(); rows != nil && rows.Tried() < tried {
			least, tried = r, rows.Tried()
		}
		r.unlockAndRecheck()
	}
	if least == nil || !least.TryLock() {
		return nil, nil
	}
	if rows := least.reclaimable(); rows != nil {
		return least, rows
	}
	least.unlockAndRecheck()
	return nil, nil
}

// reclaimable returns, under the lock, the rows of r if nothing but these holds it.
func (r *realConn) reclaimable() *session.Rows {
	rows, b := r.Rows(), r.holder.Load()
	if b == nil || !rows.Reclaimable() {
		return nil
	}
	if u := &r.use; u.users != 1 || u.pin != pinNone || u.raw != nil || b.ended.Load() {
		return nil
	}
	return rows
}

// takeRows reads more of the rows into memory, and gives their connection back if that was
// all. It holds the lock.
func (c *Connector) takeRows(r *realConn, rows *session.Rows) (taken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimPatience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // r.Calls tells inspect
			rows.SkipReadAhead()
			r.unlockAndRecheck()
			c.log.Error("pooldriver: the driver panicked when rows were read ahead", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
		}
	}()
	if !rows.ReadMore(ctx) {
		r.unlockAndRecheck()
		return false
	}
	c.stats.reclaims.Add(1)
	r.holder.Load().release(r)
	return true
}

// hasFree reports whether the binding has a connection that nothing runs on.
func (b *binding) hasFree() bool {
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b || !r.TryLock() {
			continue
		}
		rows := r.Rows()
		free := b.maySend(r) && (rows == nil || !rows.TooLarge() && b.connector.stats.buffered.Load() <= b.connector.env.BufferTotal)
		r.unlockAndRecheck()
		if free {
			return true
		}
	}
	return false
}

// returnStatements closes what idle connections have prepared.
func (c *Connector) returnStatements() {
	var idle []pool.Lease[*realConn]
	defer func() { // also by a panic of the driver, which costs its connection
		for _, lease := range idle {
			if r := lease.Value(); r.Calls() > 0 || r.Unusable() {
				discard(r, lease)
			} else {
				mustEnd(lease.Release())
			}
		}
	}()
	for lease, ok := c.pool.TryAcquire(); ok; lease, ok = c.pool.TryAcquire() {
		idle = append(idle, lease)
		lease.Value().ReturnStatements(context.Background())
	}
}

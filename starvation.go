package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/relay"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// What happens when a statement waits long for a connection. The pool calls starving
// every starveAfter while its first waiter has waited that long.
//
// If a connection is held by nothing but open rows, the rows are read into memory and the
// connection serves the queue. If a statement waits because all connections of its task
// were busy, it uses the first of them that is free again. If every connection is held by
// a task that itself waits for one more: waitcycle.go.

const (
	starveAfter = 20 * time.Millisecond
	// reclaimPatience bounds the reading of rows that are taken back.
	reclaimPatience = time.Second
	// readerPatience is how long one reader may read the same rows ahead alone. Then
	// another reader begins with other rows, because the server may be slow with the
	// first.
	readerPatience = 50 * time.Millisecond
)

// errOwnIsFree sends a waiter back to its task's own connections.
var errOwnIsFree = errors.New("pooldriver: a connection of the task is free")

// waiter is a statement that waits for a connection. Its task may hold one, or a task from
// whose context its context was derived.
type waiter struct {
	binding  *binding // nil without a task
	label    *string  // nil: none
	from     *task.Task
	tooLarge error // why rows of the task stay open
	cancel   context.CancelCauseFunc
}

// starvation is what a connector knows of waiters.
type starvation struct {
	waiters waitgraph.Queue[*waiter]
	cycles  waitgraph.Watch
	readers relay.Relay // read rows ahead
}

// acquire takes a connection from the pool. from is a task that the statement's
// context was derived from, if any. who is the *binding of the statement's task or,
// without one, its label.
func (c *core) acquire(ctx context.Context, from *task.Task, who any) (_ *realConn, err error) {
	var r *connpool.Conn
	if from == nil {
		r, err = c.pool.Acquire(ctx, who)
	} else if r, err = c.pool.AcquireNow(ctx); err == pool.ErrNoneNow {
		label, _ := who.(*string)
		return c.await(ctx, &waiter{from: from, label: label})
	}
	if err != nil {
		return nil, c.acquireError(err, nil)
	}
	return c.broughtUp(ctx, r)
}

// broughtUp is r, which comes from the pool, with all settings of the *sql.DB.
func (c *core) broughtUp(ctx context.Context, r *connpool.Conn) (*realConn, error) {
	if err := c.pool.BringUp(ctx, r); err != nil {
		return nil, err
	}
	return realOf(r), nil
}

// acquireNow takes a connection that is to be had without waiting for others. The error is
// pool.ErrNoneNow if there is none.
func (c *core) acquireNow(ctx context.Context) (*realConn, error) {
	r, err := c.pool.AcquireNow(ctx)
	switch err {
	case nil:
		return c.broughtUp(ctx, r)
	case pool.ErrNoneNow:
		return nil, err
	}
	return nil, c.acquireError(err, nil)
}

// await queues for a connection. While it waits, starving looks after the waiter.
func (c *core) await(ctx context.Context, w *waiter) (*realConn, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.cancel = cancel
	c.starvation.waiters.Join(w)
	r, err := c.pool.Acquire(waiting, w)
	c.starvation.waiters.Leave(w)
	if err == nil {
		return c.broughtUp(ctx, r)
	}
	if ctx.Err() == nil && waiting.Err() != nil {
		if err = context.Cause(waiting); err != errOwnIsFree {
			c.report.AcquireFailed(report.Deadlock)
		}
		return nil, err
	}
	err = c.acquireError(err, w)
	if w.tooLarge != nil {
		err = fmt.Errorf("%w; rows that the task has open could not be read into memory instead: %w", err, w.tooLarge)
	}
	return nil, err
}

// starving is the pool's hook Config.Starving.
func (c *core) starving(waiting int) {
	if s := c.pool.Stats(); s.Count >= s.Allowed { // otherwise they wait for a dial
		c.reclaim(waiting - s.Creating)
	}
	waiters := c.starvation.waiters.All()
	for _, q := range waiters {
		if w := q.Waiter; w.binding != nil && w.binding.shares && w.binding.hasFree() {
			w.cancel(errOwnIsFree)
		}
	}
	c.lookForCycle(waiters)
}

// reclaim takes back up to wanted connections. Rows are read ahead one after the other and
// in steps. Nobody knows how many rows a query has left. The short ones must be found
// before long ones fill the memory.
func (c *core) reclaim(wanted int) {
	if wanted <= 0 || c.starvation.readers.Busy(readerPatience) {
		return
	}
	if r, rows := c.leastRead(); r != nil {
		go c.readOthers(c.starvation.readers.Begin(), r, rows, wanted)
	}
}

// readOthers is what a reader does. It begins with rows and owns the lock of r.
func (c *core) readOthers(me *relay.Runner, r *realConn, rows *session.Rows, wanted int) {
	defer me.End()
	for r != nil {
		if c.takeRows(r, rows) {
			wanted--
		}
		if wanted <= 0 || c.pool.Stats().Waiting == 0 || !me.Last() {
			return
		}
		me.Next()
		r, rows = c.leastRead()
	}
}

// leastRead returns the rows of which the least was read ahead so far, and their
// connection, which it has locked. nil: no rows may be read. So large rows come last.
func (c *core) leastRead() (*realConn, *session.Rows) {
	if c.report.Buffered.Load() > c.env.BufferOthers {
		return nil, nil
	}
	var least *realConn
	tried := int64(math.MaxInt64)
	for r := range c.connections() {
		if r.Rows() == nil {
			continue
		}
		if b, rows := r.tryReclaim(); rows != nil {
			if rows.Tried() < tried {
				least, tried = r, rows.Tried()
			}
			b.endPeek(r)
		}
	}
	if least != nil {
		if _, rows := least.tryReclaim(); rows != nil {
			return least, rows
		}
	}
	return nil, nil
}

// tryReclaim peeks at r and locks it, if only its rows hold it, and returns these and the binding
// that has r; nil: it has done nothing.
func (r *realConn) tryReclaim() (*binding, *session.Rows) {
	b := r.tryPeek()
	if b == nil {
		return nil, nil
	}
	rows := r.Rows()
	if rows == nil || !rows.Reclaimable() || b.users(r) != 1 || r.use.pin.KeepsTask() || r.use.raw != nil || b.ended.Load() {
		b.endPeek(r)
		return nil, nil
	}
	return b, rows
}

// takeRows reads more of the rows into memory. If no rows are left to read, it gives their
// connection back. It is called with the lock, and unlocks.
func (c *core) takeRows(r *realConn, rows *session.Rows) (taken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimPatience)
	defer cancel()
	b := r.holder.Load()
	defer func() {
		if p := recover(); p != nil { // inspect sees in r.Calls that a call has not returned
			rows.SkipReadAhead()
			b.endPeek(r)
			c.report.DriverPanicked("when rows were read ahead", p)
		}
	}()
	if !rows.ReadMore(ctx) {
		b.endPeek(r)
		return false
	}
	c.report.Reclaims.Add(1)
	b.release(r, true)
	return true
}

// hasFree reports whether the binding has a connection on which nothing runs.
func (b *binding) hasFree() bool {
	for r := range b.connector.connections() {
		if !b.tryPeek(r) {
			continue
		}
		rows := r.Rows()
		free := b.maySend(r) && (rows == nil || !rows.TooLarge() && b.connector.report.Buffered.Load() <= b.connector.env.BufferTotal)
		b.endPeek(r)
		if free {
			return true
		}
	}
	return false
}

// acquireError is the error of a caller that got no connection. A caller that waited in a closed
// wait cycle is told so. w is nil for a caller without a task.
func (c *core) acquireError(err error, w *waiter) error {
	a, ok := errors.AsType[*pool.AcquireError](err)
	if ok && a.Timeout() && a.Waited > 0 {
		if found := c.starvation.cycles.Around(a.Waited); found != nil {
			c.report.AcquireFailed(report.Timeout)
			a.Cause = ctxerr.Harmless(a.Cause) // it is this caller's own
			return fmt.Errorf("pooldriver: no connection to %s: %s; %s: %w (%s)", c.report.Target(), waitgraph.InCycle, w.advice(c), err, found.Names())
		}
	}
	return c.pool.Explain(err)
}

// admits reports whether a statement may take a connection that has none: not if the
// connector drains, unless its task has a connection or one around that. b is nil without a
// task.
func (c *core) admits(b *binding, from *task.Task) bool {
	return !c.pool.Draining() || c.serves(b, from)
}

func (c *core) serves(b *binding, from *task.Task) bool {
	if b != nil && b.hasAny() {
		return true
	}
	for t := from; t != nil; t = t.From() {
		if around := c.bindingOf(t); around != nil && around.hasAny() {
			return true
		}
	}
	return false
}

// hasAny reports whether the binding has a connection. (held counts those, too, that are
// only on their way to it.)
func (b *binding) hasAny() bool {
	for r := range b.connector.connections() {
		if r.holder.Load() == b {
			return true
		}
	}
	return false
}

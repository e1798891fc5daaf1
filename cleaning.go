package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// takeBack takes a real connection back at the end of a checkout. As settle decides, the
// connection is lent again at once, or is rolled back and cleaned in the background, or is
// closed. of is the task that had the connection, nil if none had it.
func (c *core) takeBack(r *realConn, of *task.Task) {
	if !c.report.HearsReleased() {
		c.takeBackUntold(r)
		return
	}
	release := r.releaseOf(of)
	c.takeBackUntold(r)
	c.tellReleased(release)
}

func (c *core) takeBackUntold(r *realConn) {
	lease := r.lease
	lost := ""
	if r.set != "" {
		lost = c.loses(r)
	}
	switch step, panicked := c.inspect(r); {
	case step.Discard:
		c.discard(r, lease, r.whyDiscarded())
		c.tellPanic(panicked)
	case step.Rollback || step.Clean || r.RoleDoubt():
		c.restoring.Add(1)
		if r.Irreplaceable() {
			// The caller waits. Otherwise the pool would make another connection for the
			// caller's next statement, and that is another database.
			c.restore(r, lease, step)
		} else {
			go c.restore(r, lease, step)
		}
	default:
		r.EndReset()
		mustEnd(lease.Release())
	}
	if lost != "" { // after the connection has left: the logger may need one
		c.report.StateLost(lost)
	}
}

// WrapUp gives back the connections of an ended task. It returns when they are back. After
// twice CleanTimeout it returns earlier, and the rest goes on in the background.
func (b *binding) WrapUp() {
	defer b.tellTaskDone()
	if b.held.Load() == 0 && len(b.onTheirWay()) == 0 {
		return
	}
	c := b.connector
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.config.CleanTimeout)
	defer cancel()
	var ends sync.WaitGroup
	var inRaw atomic.Bool
	for _, r := range c.connections() {
		if r.holder.Load() != b {
			continue
		}
		ends.Go(func() {
			if r.lockFor(ctx) != nil {
				b.sever(r) // the holder of the lock evicts r when it unlocks
				return
			}
			if r.holder.Load() == b && r.use.raw != nil {
				inRaw.Store(true)
			}
			b.release(r)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ends.Wait()
		for _, back := range b.onTheirWay() { // each was locked once: there are no more
			<-back
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		c.report.TaskOutlasted(b.task.Name())
	}
	if inRaw.Load() {
		c.report.TaskEndedInRaw(b.task.Name())
	}
}

// sever cuts the network connection of r, because a call of the driver hangs on it: the
// server does not answer, and the call has no context. r may leave the binding at any
// time. Either sever sees that r has left, or inspect sees that r is severed. So no
// borrower gets a severed connection.
func (b *binding) sever(r *realConn) {
	if r.Irreplaceable() {
		return // r comes back when the call ends; cutting it would end the database
	}
	r.MarkSevered()
	if r.holder.Load() == b {
		r.Sever()
	}
}

// onTheirWay has a channel for each connection that goes back at the task's end. The
// channel is closed when the connection is back.
func (b *binding) onTheirWay() []<-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evictions
}

// evict takes r from a task that has ended. It is called with r's lock, and unlocks. When
// it returns, nothing that the task has opened or changed on r is left.
func (b *binding) evict(r *realConn) {
	c := b.connector
	done := make(chan struct{})
	defer close(done)
	b.mu.Lock()
	b.evictions = append(b.evictions, done) // WrapUp may wait for the lock now, and waits for done next
	b.mu.Unlock()
	var log restoreLog
	defer log.tell() // before done is closed: the log is complete when the task's end returns
	since, cancelled := r.use.since, r.TxCancelled()
	open, panicked := r.Undo(b.task.EndedError())
	b.tellUndone(&log, open, cancelled, panicked, since)
	lease := r.lease
	b.unbind(r)
	r.Unlock()
	if c.report.HearsReleased() {
		defer c.tellReleased(r.releaseOf(b.task))
	}
	step, panicked := c.inspect(r)
	if step.Discard {
		c.discard(r, lease, r.whyDiscarded())
		c.tellPanic(panicked)
	} else {
		c.restoring.Add(1)
		step.Discard = !c.restore(r, lease, step)
	}
	if step.Discard {
		<-r.ended // until then the server keeps r's locks; destroyTimeout bounds the wait
	}
}

// tellUndone adds to log what a task has left open. cancelled: the context of the transaction
// had ended before.
func (b *binding) tellUndone(log *restoreLog, open, cancelled bool, panicked any, since time.Time) {
	c := b.connector
	if panicked != nil {
		log.add(func() {
			c.report.DriverPanicked("at the end of a task; the connection was closed", panicked, "task", b.task.Name())
		})
	}
	if open {
		c.report.Rollbacks.Add(1)
		b.rolledBack.Store(true)
	}
	if open && !cancelled { // what is cancelled database/sql would have rolled back a moment later
		long := ago(since)
		log.add(func() { c.report.TaskEndedOpen(b.task.Name(), long) })
	}
}

// inspect decides what has to be done with r before it is lent again.
func (c *core) inspect(r *realConn) (step pinning.Step, panicked any) {
	f := r.Inspect()
	if f.Unusable {
		return pinning.Step{Discard: true}, f.Panicked
	}
	return pinning.Next(pinning.Left{
		Status: f.Status,
		Effect: f.Effect,
		Mode:   pinning.Mode(c.config.Reset),
		Valid:  f.Valid,
		Doubt:  f.Doubt,
		Whole:  r.Irreplaceable(),
	}), nil
}

// tellPanic logs a panic of the driver, nil: there was none. The connection has left already.
func (c *core) tellPanic(panicked any) {
	if panicked != nil {
		c.report.DriverPanicked("when asked whether a connection is valid; it was closed", panicked)
	}
}

// discard closes r, which was in use: the server may still work for it.
func (c *core) discard(r *realConn, lease pool.Lease[*realConn], why report.Reason) {
	c.report.Discards.Add(1)
	r.discarded, r.ended = why, make(chan struct{})
	mustEnd(lease.Discard())
}

// whyDiscarded returns why settle discards r.
func (r *realConn) whyDiscarded() report.Reason {
	if !r.Unusable() && r.Effect()&dialects.Unresettable != 0 {
		return report.Uncleanable
	}
	return report.Lost
}

// mustEnd: a binding ends its lease exactly once. If it did not, two borrowers could hold
// one connection, and no other promise of the package would hold.
func mustEnd(err error) {
	if err != nil {
		panic("pooldriver: broken invariant: " + err.Error())
	}
}

// restoreLog collects the log entries about a connection. They are written after the
// connection has left, because the logger may need a connection.
type restoreLog []func()

func (l *restoreLog) add(write func()) { *l = append(*l, write) }

func (l *restoreLog) tell() {
	for _, write := range *l {
		write()
	}
}

// restore brings a real connection back to its state at connect and returns it to the
// pool. It has a bounded context of its own: the borrower's context may have ended, and
// the checkout with it. If anything fails, or the driver panics, the connection is closed.
func (c *core) restore(r *realConn, lease pool.Lease[*realConn], step pinning.Step) (restored bool) {
	var log restoreLog
	defer log.tell()
	var done reset
	begun := c.usage.Clock.Fine()
	defer c.restoring.Add(-1)
	defer func() {
		if p := recover(); p != nil {
			done.why, done.err = report.ResetFailed, fmt.Errorf("pooldriver: the driver panicked: %T", p)
			log.add(func() { c.report.DriverPanicked("while a connection was cleaned; it was closed", p) })
		}
		took := c.since(begun)
		log.add(func() { c.report.Reset(took, done.rolledBack, done.cleaned, done.err) })
		if restored {
			mustEnd(lease.Release())
		} else {
			c.discard(r, lease, done.why)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), c.config.CleanTimeout)
	defer cancel()
	r.BeginReset()
	if step.Rollback && !c.rollback(ctx, r, &log, &done) {
		return false
	}
	if step.Clean && !c.clean(ctx, r, &log, &done) {
		return false
	}
	if r.RoleDoubt() && !c.settleRole(ctx, r) {
		done.why, done.err = report.WrongRole, errWrongRole
		return false
	}
	r.EndReset()
	return true
}

// reset records what restore has done with a connection.
type reset struct {
	rolledBack, cleaned bool
	err                 error         // why the connection is closed; nil: it is not
	why                 report.Reason // err in one word
}

var (
	errRollback  = errors.New("pooldriver: whether the transaction is rolled back is not known")
	errWrongRole = errors.New("pooldriver: whether the server is still what the DSN asks for is not known, or it is not")
)

// rollback ends the transaction that a checkout has left open, or may have left open.
func (c *core) rollback(ctx context.Context, r *realConn, log *restoreLog, reset *reset) bool {
	reset.why, reset.err = report.ResetFailed, errRollback // if the driver panics, too
	open, done := r.Rollback(ctx)
	if done {
		reset.err = nil
	}
	reset.rolledBack = open && done
	if open {
		c.report.Rollbacks.Add(1)
		log.add(c.report.BackOpen)
	}
	return done
}

// clean brings the session back to its state at connect, AfterConnect included.
func (c *core) clean(ctx context.Context, r *realConn, log *restoreLog, reset *reset) bool {
	if err := r.Clean(ctx, c.config.Reset == ResetAlways); err != nil {
		reset.why, reset.err = report.Uncleanable, err
		if !errors.Is(err, dialects.ErrCannotClean) {
			reset.why = report.ResetFailed
			log.add(func() { c.report.CannotClean(err) })
		}
		return false
	}
	if err := c.afterConnect(ctx, r.Server()); err != nil {
		reset.why, reset.err = report.ResetFailed, err
		log.add(func() { c.report.HookRefused(err) })
		return false
	}
	c.report.Cleanings.Add(1)
	reset.cleaned = true
	return true
}

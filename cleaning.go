package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// takeBack ends the hold on a real connection: it is lent again at once, rolled
// back and cleaned behind the caller, or closed, as settle decides.
func (c *Connector) takeBack(r *realConn) {
	lease := r.lease
	r.deferred = nil
	lost := ""
	if r.set != "" {
		lost = c.loses(r)
	}
	switch step := c.inspect(r); {
	case step.discard:
		c.stats.discards.Add(1)
		discard(r, lease)
		c.tellPanic(step)
	case step.rollback || step.clean || r.roleDoubt:
		c.restoring.Add(1)
		if r.irreplaceable {
			// Before the caller goes on: the pool would make another connection for
			// his next statement, which is another database.
			c.restore(r, lease, step)
		} else {
			go c.restore(r, lease, step)
		}
	default:
		r.effect, r.doubt = dialects.Clean, false
		mustEnd(lease.Release())
	}
	if lost != "" { // said when the connection is on its way: a logger may want it
		c.tellLoss(lost)
	}
}

// WrapUp ends what an ended task has here, and returns when it is done or
// takes too long: then it goes on behind the caller.
func (b *binding) WrapUp() {
	if b.held.Load() == 0 && len(b.onTheirWay()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*b.connector.config.CleanTimeout)
	defer cancel()
	var ends sync.WaitGroup
	var inRaw atomic.Bool
	for _, r := range b.connector.connections() {
		if r.holder.Load() != b {
			continue
		}
		ends.Go(func() {
			if r.lockFor(ctx) != nil {
				b.sever(r) // whoever holds the lock comes to the same end when it unlocks
				return
			}
			if r.holder.Load() == b && r.seat.raw != nil {
				inRaw.Store(true)
			}
			b.pass(r)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ends.Wait()
		for _, back := range b.onTheirWay() { // all were locked once: no more are to come
			<-back
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		b.connector.log.Warn("pooldriver: a task has ended, and a statement of it has not; its connection comes back when it does", "target", b.connector.template.Target(), "task", b.task.Name())
	}
	if inRaw.Load() {
		b.connector.log.Warn("pooldriver: a task has ended while a function of Raw has its connection, which comes back when the function returns", "target", b.connector.template.Target(), "task", b.task.Name())
	}
}

// sever cuts r's connection while a call of the driver is under way on it that does
// not end: the server hangs, and the call knows no context. r may leave the binding
// at any time. Either it is seen here that it has left, or whoever inspects it then
// sees that it is cut, and nobody gets it any more.
func (b *binding) sever(r *realConn) {
	if r.irreplaceable {
		return // it comes back when the call ends, with the database
	}
	r.cut.Store(true)
	if s, ok := r.session.(dialects.Severable); ok && r.holder.Load() == b {
		s.Sever()
	}
}

// onTheirWay are the connections that go back at the task's end: each is closed
// when it is there.
func (b *binding) onTheirWay() []<-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evictions
}

// evict ends r's time with a task that has ended, under r's lock, which it
// gives back: nothing is open or changed any more when it returns.
func (b *binding) evict(r *realConn) {
	c := b.connector
	done := make(chan struct{})
	defer close(done)
	b.mu.Lock()
	b.evictions = append(b.evictions, done) // WrapUp may be waiting for the lock, and waits for this next
	b.mu.Unlock()
	var log restoreLog
	defer log.tell() // before done is closed: when the task's end returns it has been said
	b.undo(r, &log)
	lease := r.lease
	b.unbind(r)
	r.lock.Unlock()
	step := c.inspect(r)
	if step.discard {
		c.stats.discards.Add(1)
		discard(r, lease)
		c.tellPanic(step)
	} else {
		c.restoring.Add(1)
		step.discard = !c.restore(r, lease, step)
	}
	if step.discard {
		<-r.ended // what it held on the server is held until then; bounded by destroyTimeout
	}
}

// undo closes the rows and rolls back the transaction that a task has left. A
// driver that panics costs the connection, not the program.
func (b *binding) undo(r *realConn, log *restoreLog) {
	c := b.connector
	defer func() {
		if p := recover(); p != nil {
			r.broken = true
			log.add(func() {
				c.log.Error("pooldriver: the driver panicked at the end of a task; the connection was closed", "target", c.template.Target(), "task", b.task.Name(), "panic", fmt.Sprintf("%T", p))
			})
		}
	}()
	if rows := r.live.Load(); rows != nil {
		rows.abandon(b.task.EndedError())
	}
	if t := r.seat.tx; t != nil && !t.unbegun() && !r.lost() {
		c.stats.rollbacks.Add(1)
		open := ago(r.seat.since)
		log.add(func() {
			c.log.Warn("pooldriver: a task ended with a transaction open, which was rolled back", "target", c.template.Target(), "task", b.task.Name(), "open", open)
		})
		_ = t.rollbackReal()
	}
}

// inspect looks at what a checkout has left. A driver that panicked is asked
// nothing more: it may hold a lock of its own. One that panics here costs the
// connection, and not the program, which has nothing to do with it.
func (c *Connector) inspect(r *realConn) (step nextStep) {
	if r.effect&dialects.ForgetPrepared != 0 {
		// What was prepared after that statement goes with its generation, too.
		r.stmts.MarkAllStale()
	}
	r.renamed = false
	if r.stmts.CloseFailed() && r.traits.PreparedAges {
		// Such as "conn busy". pgx goes on finding it by its text, and we do not know
		// of it any more.
		r.effect |= dialects.Suspect | dialects.ForgetPrepared
	}
	if r.broken || r.cut.Load() || r.running > 0 {
		return nextStep{discard: true}
	}
	defer func() {
		if p := recover(); p != nil {
			step = nextStep{discard: true, panicked: p}
		}
	}()
	return settle(leftBehind{
		status: r.txStatus(),
		effect: r.effect,
		reset:  c.config.Reset,
		valid:  r.conn.Validator == nil || r.conn.Validator.IsValid(),
		doubt:  r.doubt,
		whole:  r.irreplaceable,
	})
}

// tellPanic says, when the connection is on its way, that its driver panicked.
func (c *Connector) tellPanic(step nextStep) {
	if step.panicked != nil {
		c.log.Error("pooldriver: the driver panicked when asked whether a connection is valid; it was closed", "target", c.template.Target(), "panic", fmt.Sprintf("%T", step.panicked))
	}
}

// discard ends r, on which the server may have something left to do.
func discard(r *realConn, lease pool.Lease[*realConn]) {
	r.discarded = true
	mustEnd(lease.Discard())
}

// mustEnd: a binding ends its lease exactly once. If it did not, two borrowers
// could hold one connection, and nothing that follows would be true.
func mustEnd(err error) {
	if err != nil {
		panic("pooldriver: broken invariant: " + err.Error())
	}
}

// restoreLog is what the log is to hear of a connection, and does when that is on its way:
// writing a log may need it.
type restoreLog []func()

func (l *restoreLog) add(write func()) { *l = append(*l, write) }

func (l *restoreLog) tell() {
	for _, write := range *l {
		write()
	}
}

// restore brings a real connection back to its state at connect and returns
// it to the pool. It has its own, bounded context: the borrower's may be what
// ended the checkout. If anything fails, or the driver panics, the connection
// is closed.
func (c *Connector) restore(r *realConn, lease pool.Lease[*realConn], step nextStep) (restored bool) {
	var log restoreLog
	defer log.tell()
	defer c.restoring.Add(-1)
	defer func() {
		if restored {
			mustEnd(lease.Release())
			return
		}
		if p := recover(); p != nil {
			log.add(func() {
				c.log.Error("pooldriver: the driver panicked while a connection was cleaned; it was closed", "target", c.template.Target(), "panic", fmt.Sprintf("%T", p))
			})
		}
		c.stats.discards.Add(1)
		discard(r, lease)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), c.config.CleanTimeout)
	defer cancel()
	if step.rollback && !c.rollback(ctx, r, &log) {
		return false
	}
	if step.clean && !c.clean(ctx, r, &log) {
		return false
	}
	if r.roleDoubt && !c.settleRole(ctx, r) {
		return false
	}
	r.effect, r.doubt = dialects.Clean, false
	return true
}

// rollback ends the transaction that a checkout left open, or may have.
func (c *Connector) rollback(ctx context.Context, r *realConn, log *restoreLog) bool {
	left := r.txStatus()
	err := r.session.Rollback(ctx)
	if left == dialects.TxOpen || left == dialects.TxFailed || left == dialects.TxImplicit {
		c.stats.rollbacks.Add(1)
		log.add(func() {
			c.log.Warn("pooldriver: a transaction was open when its connection came back, and was rolled back; if it was begun by hand, use BeginTx, which keeps the connection", "target", c.template.Target())
		})
	}
	// Where nobody can say that it is over, it is not taken for over.
	return err == nil && r.session.TxStatus() == dialects.TxNone
}

// clean brings the session back to its state at connect, AfterConnect included.
func (c *Connector) clean(ctx context.Context, r *realConn, log *restoreLog) bool {
	effect := r.effect
	if c.config.Reset == ResetAlways {
		effect |= dialects.Suspect // this mode is for what no text shows
	}
	kept, err := r.session.Clean(ctx, effect)
	if err != nil {
		if !errors.Is(err, dialects.ErrCannotClean) {
			log.add(func() {
				c.log.Warn("pooldriver: a connection could not be cleaned, and was closed", "target", c.template.Target(), "error", err)
			})
		}
		return false
	}
	if !kept {
		r.stmts.Forget()
	}
	if r.stmts.Forgotten() > maxForgotten {
		return false
	}
	if err := c.afterConnect(ctx, r.session); err != nil {
		log.add(func() {
			c.log.Warn("pooldriver: a cleaned connection was closed", "target", c.template.Target(), "error", err)
		})
		return false
	}
	c.stats.cleanings.Add(1)
	return true
}

// maxForgotten is the number of forgotten statements after which a connection is replaced:
// see stmtcache.Cache.Forgotten. To close each instead would cost a round trip.
const maxForgotten = 10_000

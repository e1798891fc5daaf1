package pooldriver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// The end of a task: its connections go back.

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
	for r := range c.connections() {
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
// time. Either sever sees that r has left, or the pool sees that r is severed when it takes r
// back. So no borrower gets a severed connection.
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
	done := make(chan struct{})
	defer close(done)
	b.mu.Lock()
	b.evictions = append(b.evictions, done) // WrapUp may wait for the lock now, and waits for done next
	b.mu.Unlock()
	since, cancelled := r.use.since, r.TxCancelled()
	open, panicked := r.Undo(b.task.EndedError())
	if open {
		b.connector.report.Rollbacks.Add(1)
		b.rolledBack.Store(true)
	}
	// What is cancelled database/sql would have rolled back a moment later.
	defer b.tellUndone(open && !cancelled, panicked, since) // before done is closed: the log is complete when the task's end returns
	b.unbind(r)
	r.Unlock()
	r.GiveBackNow(b.task)
}

// tellUndone tells what a task has left open on a connection, after that has left: the logger
// may need one.
func (b *binding) tellUndone(open bool, panicked any, since time.Time) {
	if panicked != nil {
		b.connector.report.DriverPanicked("at the end of a task; the connection was closed", panicked, "task", b.task.Name())
	}
	if open {
		b.connector.report.TaskEndedOpen(b.task.Name(), ago(since))
	}
}

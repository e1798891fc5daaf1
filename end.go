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
	if b.held.Load() == 0 {
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
			if r.Lock(ctx) != nil {
				b.sever(r)
				_ = r.Lock(context.Background())
			}
			switch {
			case r.holder.Load() != b:
				r.Unlock()
			case r.use.raw != nil:
				inRaw.Store(true)
				r.use.left = true
				r.Unlock()
			default:
				b.evict(r)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ends.Wait()
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

// evict takes r from a task that has ended. It is called with r's lock, and unlocks. When
// it returns, nothing that the task has opened or changed on r is left.
func (b *binding) evict(r *realConn) {
	since, cancelled := r.use.since, r.TxCancelled()
	open, panicked := r.Undo(b.task.EndedError())
	if open {
		b.connector.report.Rollbacks.Add(1)
		b.rolledBack.Store(true)
	}
	// What is cancelled database/sql would have rolled back a moment later.
	defer b.tellUndone(open && !cancelled, panicked, since)
	b.mu.Lock()
	b.takeOutLocked(r)
	b.mu.Unlock()
	b.restore(r)
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

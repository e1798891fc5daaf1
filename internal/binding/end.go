package binding

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/internal/report"
)

// The end of a task: its connections go back.

// WrapUp gives back the connections of an ended task. It returns when they are back, or after
// twice CleanTimeout. In that case the rest goes on in the background.
func (b *Binding) WrapUp() {
	defer b.tellTaskDone()
	if b.held.Load() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*b.engine.config.Pool.Limits.CleanTimeout)
	defer cancel()
	var ends sync.WaitGroup
	var inRaw atomic.Bool
	for r := range b.conns() {
		ends.Go(func() {
			if r.Lock(ctx) != nil {
				b.sever(r)
				_ = r.Lock(context.Background())
			}
			switch {
			case r.holder.Load() != b:
				r.unlock()
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
		b.engine.report.TaskOutlasted(b.task.Name())
	}
	if inRaw.Load() {
		b.engine.report.TaskEndedInRaw(b.task.Name())
	}
}

// tellTaskDone reports that the binding's task has ended.
func (b *Binding) tellTaskDone() {
	b.engine.report.TaskEnded(func() report.Who {
		return report.Who{Task: b.task.Name(), Label: b.task.Label(), Implicit: b.task.Implicit()}
	}, b.task.Begun(), b.rolledBack.Load())
}

// sever cuts the network connection of r, because a call of the driver hangs on it: the
// server does not answer, and the call has no context. r may leave the binding at any
// time. Either sever sees that r has left, or the pool sees that r is severed when it takes r
// back. So no borrower gets a severed connection.
func (b *Binding) sever(r *Conn) {
	if r.Irreplaceable() {
		return // r comes back when the call ends; a cut would end the database
	}
	r.MarkSevered()
	if r.holder.Load() == b {
		r.Sever()
	}
}

package binding

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/observe/report"
)

// The end of a task: its connections go back.

// WrapUp gives back the connections of an ended task. It returns when they are back, or after
// twice CleanTimeout. In that case the rest goes on in the background.
func (b *Binding) WrapUp() {
	defer b.tellTaskDone()
	if b.checkouts.Load() > 0 {
		time.AfterFunc(forgottenAfter, func() { tellForgotten(b) })
	}
	if b.held.Load() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*b.engine.config.CleanTimeout)
	defer cancel()
	var ends sync.WaitGroup
	var inRaw atomic.Bool
	for _, s := range b.all() { // ended is set, so nobody else takes their connections
		ends.Go(func() {
			if s.lock.Lock(ctx) != nil {
				s.sever()
				_ = s.lock.Lock(context.Background())
			}
			switch {
			case s.conn.Load() == nil:
				s.lock.Unlock()
			case s.raw != nil:
				inRaw.Store(true)
				s.over = true
				s.lock.Unlock()
			default:
				b.evict(s)
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

// forgottenAfter is how long database/sql has, after the end of a task, to close what ends with the task's context.
const forgottenAfter = time.Second

// tellForgotten reports the checkouts of the ended task that have not ended: a *sql.Conn that shares the task's session holds no
// connection, so nothing else tells that nobody has closed it.
func tellForgotten(b *Binding) {
	if n := b.checkouts.Load(); n > 0 {
		b.engine.report.ConnsForgotten(int(n), b.task.Name(), b.task.Label())
	}
}

// tellTaskDone reports that the binding's task has ended.
func (b *Binding) tellTaskDone() {
	b.engine.report.TaskEnded(func() report.Who {
		return report.Who{Task: b.task.Name(), Label: b.task.Label(), Implicit: b.task.Implicit()}
	}, b.task.Begun(), b.rolledBack.Load())
}

// sever cuts the network connection, because a call of the driver hangs on it: the
// server does not answer, and the call has no context. The connection may leave at any
// time. Either sever sees that it has left, or the pool sees that it is severed when it takes it
// back. So no borrower gets a severed connection.
func (s *Seat) sever() {
	r := s.conn.Load()
	if r == nil || r.Session.Irreplaceable() {
		return // it comes back when the call ends; a cut would end the database
	}
	r.Session.MarkSevered()
	if s.Has(r) {
		r.Session.Sever()
	}
}

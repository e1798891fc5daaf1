package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lazyTimeout is a context that ends d after it is first asked for its end. A driver that does
// not ask, because it waits for nothing, costs no timer. Nothing is allocated either: the session
// keeps the context for the next call. database/sql's drivers must not keep a context after the
// call.
type lazyTimeout struct {
	context.Context // the parent
	d               time.Duration

	asked atomic.Bool
	once  sync.Once // sets the following fields
	inner context.Context
	end   context.CancelFunc
}

func (l *lazyTimeout) bounded() context.Context {
	l.once.Do(func() {
		l.inner, l.end = context.WithTimeout(l.Context, l.d)
		l.asked.Store(true)
	})
	return l.inner
}

func (l *lazyTimeout) Deadline() (time.Time, bool) { return l.bounded().Deadline() }
func (l *lazyTimeout) Done() <-chan struct{}       { return l.bounded().Done() }
func (l *lazyTimeout) Err() error                  { return l.bounded().Err() }

package session

import (
	"context"
	"sync"
	"time"
)

// lazyTimeout is a context that ends d after it is first asked for its end. A driver that
// does not ask, because it waits for nothing, costs no timer, and nothing is allocated: its
// session keeps the context for the next call. database/sql's drivers may not keep a context
// beyond the call.
type lazyTimeout struct {
	context.Context // the parent
	d               time.Duration

	mu     sync.Mutex // protects following fields
	inner  context.Context
	cancel context.CancelFunc
}

func (l *lazyTimeout) asked() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		l.inner, l.cancel = context.WithTimeout(l.Context, l.d)
	}
	return l.inner
}

func (l *lazyTimeout) Deadline() (time.Time, bool) { return l.asked().Deadline() }
func (l *lazyTimeout) Done() <-chan struct{}       { return l.asked().Done() }
func (l *lazyTimeout) Err() error                  { return l.asked().Err() }

// release frees what was needed. used: it was asked, and cannot be used for another call.
func (l *lazyTimeout) release() (used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
		return true
	}
	l.Context = context.Background()
	return false
}

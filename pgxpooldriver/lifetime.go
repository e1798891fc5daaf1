package pgxpooldriver

import (
	"context"
	"sync/atomic"
	"time"
)

// lifetime is the context of a transaction: the one of Begin without its end, until a call ends the transaction, and then
// the context of that call. So, as with pgx, the context of Begin bounds nothing but the begin.
type lifetime struct {
	between, end context.Context
	now          atomic.Pointer[context.Context] // one of them
}

// start makes l, which is new, the context of a Begin with ctx.
func (l *lifetime) start(ctx context.Context) {
	l.between = context.WithoutCancel(ctx)
	l.now.Store(&l.between)
}

// finish makes l the context of the call that ends the transaction.
func (l *lifetime) finish(ctx context.Context) {
	l.end = ctx
	l.now.Store(&l.end)
}

func (l *lifetime) Deadline() (time.Time, bool) { return (*l.now.Load()).Deadline() }
func (l *lifetime) Done() <-chan struct{}       { return (*l.now.Load()).Done() }
func (l *lifetime) Err() error                  { return (*l.now.Load()).Err() }
func (l *lifetime) Value(key any) any           { return (*l.now.Load()).Value(key) }

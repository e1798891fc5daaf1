// Package mergedctx makes one context of several: one that ends when either of two ends, and one that is one after the other.
package mergedctx

import (
	"context"
	"sync/atomic"
)

// Context ends when either of two contexts ends, with the error and cause of that context. Values
// are those of the first context. A nil Context means that none was needed: its methods Detach and
// Release do nothing.
type Context struct {
	context.Context // ends with either
	first, second   context.Context
	stop            func() bool
	cancel          context.CancelCauseFunc
	err             atomic.Pointer[error] // set at the first call of Err
}

// New returns a context that ends with first or second, and the Context to release. If
// second cannot end, or ends with first, it returns first and nil.
func New(first, second context.Context) (context.Context, *Context) {
	if done := second.Done(); done == nil || done == first.Done() {
		return first, nil
	}
	ctx, cancel := context.WithCancelCause(first)
	stop := context.AfterFunc(second, func() { cancel(context.Cause(second)) })
	c := &Context{Context: ctx, first: first, second: second, stop: stop, cancel: cancel}
	return c, c
}

// Err is the error of the context that has ended. It is context.DeadlineExceeded after a deadline;
// context.WithCancelCause would not tell this.
func (c *Context) Err() error {
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	if e := c.first.Err(); e != nil {
		err = e
	} else if e := c.second.Err(); e != nil {
		err = e
	}
	c.err.CompareAndSwap(nil, &err) // the answer never changes again
	return *c.err.Load()
}

// Detach: from now on, c does not end with second.
func (c *Context) Detach() {
	if c != nil {
		c.stop()
	}
}

// Release frees what c needs, and ends it.
func (c *Context) Release() {
	if c != nil {
		c.stop()
		c.cancel(nil)
	}
}

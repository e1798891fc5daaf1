// Package rowwatch has the context of a query whose rows end with it, although database/sql starts no
// goroutine that waits for its end.
package rowwatch

import (
	"context"
	"sync/atomic"
)

// Context is what database/sql gets in place of the context of one query. It is that context until a virtual
// connection has the rows. From then on it has no end for database/sql, which asks for Done once more to see
// whether the rows need a goroutine. So database/sql waits for a connection and tries again as with the
// context itself, and a query that reaches no virtual connection is watched by database/sql.
//
// One goroutine runs the query, and all methods but Closed are its. Done is no method for others: below
// database/sql the context is taken out (Of).
type Context struct {
	context.Context

	open  bool        // a virtual connection has the rows
	ended atomic.Bool // the context has ended while the rows were open
	stop  func() bool // ends the watch; nil: it has not begun
}

// Done is the context's, and nil when a virtual connection has the rows.
func (c *Context) Done() <-chan struct{} {
	if c.open {
		return nil
	}
	return c.Context.Done()
}

// Of returns the context that ctx stands for, and ctx itself as a *Context; nil: it is none.
func Of(ctx context.Context) (context.Context, *Context) {
	if c, ok := ctx.(*Context); ok {
		return c.Context, c
	}
	return ctx, nil
}

// Opened is called when a virtual connection hands out the rows of the query.
func (c *Context) Opened() { c.open = true }

// Watch calls closeRows when the context ends, unless the rows have been closed before. It is called
// when database/sql has the rows.
func (c *Context) Watch(closeRows func()) {
	if !c.open {
		return
	}
	c.stop = context.AfterFunc(c.Context, func() {
		c.ended.Store(true)
		closeRows()
	})
}

// Closed is called when the rows are closed. It returns the context's error if the context has ended while
// the rows were open. database/sql calls it once, and closeRows may be the caller. closeRows has set ended, so
// it does not read stop, which Watch may be about to write.
func (c *Context) Closed() error {
	switch {
	case c.ended.Load():
		return c.Err()
	case c.stop != nil:
		c.stop()
	default:
		c.open = false // a wrapper has read the rows before it handed them on
	}
	return nil
}

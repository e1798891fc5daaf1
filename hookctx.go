package pooldriver

import "context"

// hookContext is what the driver's own hooks (connect, ResetSession) get of a borrower: it ends
// with the statement, and has the values of the context with which database/sql has taken the
// connection, as over the bare driver.
type hookContext struct {
	context.Context // the statement's
	values          context.Context
}

func (h hookContext) Value(key any) any { return h.values.Value(key) }

// forHooks is ctx for the driver's hooks.
func (c *checkout) forHooks(ctx context.Context) context.Context {
	if c.values == nil || isSame(ctx, c.values) {
		return ctx
	}
	return hookContext{ctx, c.values}
}

// isSame reports whether two contexts are known to be one.
func isSame(a, b context.Context) (same bool) {
	defer func() { _ = recover() }() // the program's types may not be comparable
	return a == b
}

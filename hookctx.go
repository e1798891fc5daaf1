package pooldriver

import (
	"context"
	"unsafe"
)

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

// isSame reports whether two contexts are known to be one: they have the same type and the same
// data. To compare them by == would panic if the program's type cannot be compared.
func isSame(a, b context.Context) bool {
	return *(*[2]uintptr)(unsafe.Pointer(&a)) == *(*[2]uintptr)(unsafe.Pointer(&b)) //nolint:gosec // it looks at no memory but its own
}

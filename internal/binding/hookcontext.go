package binding

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// hookContext is the context that the driver's own hooks (connect, ResetSession) get. It ends
// with the borrower's statement. As over the bare driver, it has the values of the context with
// which database/sql has taken the connection.
type hookContext struct {
	context.Context // the context of the statement
	values          context.Context
}

func (h hookContext) Value(key any) any { return h.values.Value(key) }

// forHooks is the context that the driver's hooks get: it ends with ctx, and has the values of the
// context with which database/sql has taken the virtual connection.
func (c *Checkout) forHooks(ctx context.Context) context.Context {
	if c.values == nil || mergedctx.IsSame(&ctx, &c.values) {
		return ctx
	}
	return &hookContext{ctx, c.values}
}

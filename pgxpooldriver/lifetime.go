package pgxpooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// lifetime is the context of a transaction: the one of Begin without its end, until a call ends the transaction, and then
// the context of that call. So, as with pgx, the context of Begin bounds nothing but the begin.
type lifetime struct {
	mergedctx.Successive
	between, end context.Context // the two contexts of which one is in force
}

// start makes l, which is new, the context of a Begin with ctx.
func (l *lifetime) start(ctx context.Context) {
	l.between = context.WithoutCancel(ctx)
	l.Become(&l.between)
}

// finish makes l the context of the call that ends the transaction.
func (l *lifetime) finish(ctx context.Context) {
	l.end = ctx
	l.Become(&l.end)
}

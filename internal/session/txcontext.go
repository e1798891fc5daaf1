package session

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// txContext is the context of a transaction under the trait TxKeepsContext. Such a driver
// uses BeginTx's context for Rollback, too. database/sql rolls back because that context has
// ended, and the driver would close the connection. So a txContext ends with what bounds the begin,
// then with BeginTx's context until the rollback, and after a timeout from then on.
type txContext struct {
	mergedctx.Successive
	lasting context.Context // BeginTx's
	bound   context.Context // of the begin
}

// newTxContext returns the context for a BeginTx with ctx. bound bounds the begin.
func newTxContext(ctx, bound context.Context) *txContext {
	t := &txContext{lasting: ctx, bound: bound}
	t.Become(&t.bound)
	return t
}

// begun: the begin has ended, so t ends with BeginTx's context alone.
func (t *txContext) begun() { t.Become(&t.lasting) }

// release lets t end after timeout, or when the returned function is called, and not with
// BeginTx's context any more.
func (t *txContext) release(timeout time.Duration) context.CancelFunc {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.lasting), timeout)
	t.Become(&ctx)
	return cancel
}

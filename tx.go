package pooldriver

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// suspectTx is the effect of a transaction that did not begin as it should.
const suspectTx = dialects.Suspect | dialects.TxControl

// tx is a transaction on the real connection of one checkout.
type tx struct {
	conn  *conn
	owner *realConn
	real  driver.Tx
	ctx   context.Context // BeginTx's
	kept  *txContext      // what the driver got instead, where it keeps it
}

// Commit commits. An error leaves it open whether the transaction has ended.
func (t *tx) Commit() error { return t.end(t.real.Commit) }

// Rollback rolls back. database/sql calls it too when the context of BeginTx
// has ended.
func (t *tx) Rollback() error {
	if t.kept != nil {
		defer t.kept.release(t.conn.connector.config.CleanTimeout)()
	}
	err := t.end(t.real.Rollback)
	if t.ctx.Err() != nil && !t.owner.traits.StatusKnown && (t.owner.resetter == nil || t.owner.validator == nil) {
		// database/sql's own rule for a connection that cannot say whether
		// it has survived a cancelled transaction.
		t.owner.broken = true
	}
	return err
}

func (t *tx) end(how func() error) error {
	t.conn.inTx = false
	t.owner.running++
	err := how()
	t.owner.running--
	if err != nil {
		t.owner.doubt = true
	}
	return err
}

// txContext is the context of a transaction for a driver that uses BeginTx's
// again for Rollback, and would close the connection because that context has
// ended: which is exactly when database/sql rolls back. It is BeginTx's context
// until the rollback, then one of its own with a bound.
type txContext struct {
	context.Context // BeginTx's, for its values
	current         atomic.Pointer[context.Context]
}

func newTxContext(ctx context.Context) *txContext {
	t := &txContext{Context: ctx}
	t.current.Store(&ctx)
	return t
}

// release exchanges the context for one that ends after timeout, or when the
// function it returns is called.
func (t *txContext) release(timeout time.Duration) context.CancelFunc {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context), timeout)
	t.current.Store(&ctx)
	return cancel
}

func (t *txContext) Deadline() (time.Time, bool) { return (*t.current.Load()).Deadline() }
func (t *txContext) Done() <-chan struct{}       { return (*t.current.Load()).Done() }
func (t *txContext) Err() error                  { return (*t.current.Load()).Err() }

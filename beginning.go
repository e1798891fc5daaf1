package pooldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// How an operation begins a transaction or a savepoint, and the one that was deferred.

// begin begins a transaction. If a transaction of the task is open on the session, it
// begins a savepoint.
func (c *checkout) begin(ctx context.Context, op *operation) (again bool, err error) {
	r, inTask := op.real, !c.bound.isPrivate()
	t := &transaction{checkout: c, owner: r, bound: c.bound}
	setting := ""
	if !c.bound.shares {
		setting = c.connector.pool.Settings().TakeNextTx()
	}
	switch {
	case c.bound.shares && r.InTx():
		return c.beginInside(ctx, op, t)
	case c.connector.config.LazyBegin && setting == "" && c.tx == nil && r.BetweenTxs():
		if err := ctx.Err(); err != nil {
			return false, ctxerr.Of(ctx, err) // as the driver would say
		}
		t.Init(ctx, op.opts)
		r.Defer(&t.Tx)
		c.touched = true
	default:
		t.Init(ctx, op.opts)
		if again, err = c.beginNow(ctx, op, t, setting); again || err != nil {
			return again, err
		}
	}
	if inTask {
		r.use.begin()
		c.bound.lowerBarrier()
	}
	r.Began(&t.Tx, r.use.since)
	op.begun(c, t)
	return false, nil
}

// beginNow begins t, and executes the setting of the *sql.DB that waits for it, if any.
func (c *checkout) beginNow(ctx context.Context, op *operation, t *transaction, setting string) (again bool, err error) {
	_, err = op.real.Begin(ctx, &t.Tx, false)
	if again, err = c.finishUnexecuted(ctx, op, err); again || err != nil {
		if op.said&dialects.Conflict != 0 {
			op.scope.BeginConflict(c.connector) // SQLite's BEGIN IMMEDIATE
		}
		if again && setting != "" {
			c.connector.pool.Settings().KeepNextTx(setting)
		}
		return again, err
	}
	if setting == "" {
		return false, nil
	}
	return false, c.setForTx(ctx, op.real, setting)
}

// setForTx executes a setting of the *sql.DB for the transaction that has just begun. If
// that fails, the transaction is rolled back.
func (c *checkout) setForTx(ctx context.Context, r *realConn, setting string) error {
	err := r.Command(ctx, setting)
	if err == nil {
		return nil
	}
	if _, done := r.Rollback(ctx); !done {
		r.MarkUnusable()
	}
	return fmt.Errorf("pooldriver: the transaction could not be given what was set on its *sql.DB for it, and is rolled back: %w", ctxerr.Of(ctx, err))
}

// beginInside begins a savepoint.
func (c *checkout) beginInside(ctx context.Context, op *operation, t *transaction) (again bool, err error) {
	r := op.real
	outer := r.TxOptions()
	if op.opts != (driver.TxOptions{}) && op.opts != outer {
		return false, errTxOptions
	}
	t.Init(ctx, outer)
	if _, err = c.finish(ctx, op, r.Savepoint(ctx, &t.Tx)); err != nil {
		return false, err
	}
	r.BeganSavepoint(&t.Tx, time.Now())
	c.bound.lowerBarrier()
	op.begun(c, t)
	return false, nil
}

// begun makes t the transaction of its checkout, and of the InTx that has called BeginTx.
func (op *operation) begun(c *checkout, t *transaction) {
	if op.scope != nil {
		op.scope.Begun(t)
	}
	op.tx = c.begun(t)
}

// beginDeferred begins the transaction that was deferred on op's session. If the
// transaction cannot begin, each of its statements fails. If the context of the first
// statement has ended before, beginDeferred tries nothing, and the next statement may
// begin the transaction.
func (c *checkout) beginDeferred(ctx context.Context, op *operation) (again bool, _ error) {
	r := op.real
	if err := r.Deferred().Refused(); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if ctxsettings.Used() {
		again, err := c.useSettingsOf(r.Deferred().Context(), op, session.ToPrepare)
		if again {
			return true, nil
		}
		if err != nil {
			return false, r.DeferredBegan(err)
		}
	}
	touched := c.touched
	carried, err := r.BeginDeferred(ctx, op.kind != lending)
	if again, err = c.finishUnexecuted(ctx, op, err); again {
		return true, nil
	}
	if err = r.DeferredBegan(err); err == nil && carried {
		c.touched = touched // nothing was sent
	}
	return false, err
}

// unattach counts t, which is deferred and has no connection. It reports false if t may not
// begin any more. from is the task that its context was made of.
func (t *transaction) unattach(from *task.Task) bool {
	c := t.checkout.connector
	t.unattached = true
	c.unattached.Add(1)
	if !c.admits(nil, from) {
		t.attached()
		return false
	}
	return true
}

// attached ends what unattach began: t has a connection, or is over.
func (t *transaction) attached() {
	if t.unattached {
		t.unattached = false
		t.checkout.connector.unattached.Add(-1)
	}
}

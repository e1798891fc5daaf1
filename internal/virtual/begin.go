package virtual

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file begins transactions, savepoints, and transactions that were deferred.

// errReading has pgx's words. In a task the rows are read into memory.
var errReading = errors.New("pooldriver: conn busy: rows are open on this connection or transaction: close them before Begin")

// newTx returns a transaction of c on r that has not begun. r is nil if the transaction is deferred and
// has no connection.
func newTx(ctx context.Context, c *checkout, opts driver.TxOptions, r *connpool.Conn) *transaction {
	t := c.spareTx
	if t == nil {
		t = new(transaction)
	}
	c.spareTx, t.checkout = nil, c
	if r != nil {
		t.held.On(&c.held)
	}
	t.held.Tx.Init(ctx, opts)
	return t
}

// isLazy reports whether a transaction that c begins now may begin with its first statement, as far as the server is not asked.
// In a sandbox a begin is a savepoint of the transaction that all of the test share: it is seen at once.
func isLazy(c *checkout) bool {
	return c.source.config.LazyBegin && c.watcher == nil && !c.held.HasTx()
}

// defers reports whether the first statement of a transaction begins it. On a replica it begins at once: one that has begun cannot
// go to the primary any more.
func defers(ctx context.Context, c *conn, opts driver.TxOptions) bool {
	return isLazy(&c.checkout) && c.refusal == nil && !c.held.Bound() && !mayReadTx(ctx, &c.checkout, opts)
}

// deferBegin leaves the begin to the first statement. nil without an error: ctx carries a task, so the
// begin is not deferred here.
func deferBegin(ctx context.Context, c *conn, opts driver.TxOptions) (driver.Tx, error) {
	var p task.Place
	if err := c.source.engine.FindPlace(ctx, &p); err != nil || p.Task != nil {
		return nil, err
	}
	p.Scope.Reach()
	if err := ctx.Err(); err != nil {
		return nil, ctxerr.Of(ctx, err)
	}
	if err := cmp.Or(c.source.pool.Closed(), c.source.refusesTx(opts)); err != nil {
		return nil, err
	}
	goTo(&c.checkout, nil)
	t := newTx(ctx, &c.checkout, opts, nil)
	if !t.held.DeferOn(&c.held, p.From) {
		return nil, c.source.pool.DrainingError()
	}
	return t.handedOut(p.Scope), nil
}

// begin begins a transaction. If a transaction of the task is open on the session, begin
// begins a savepoint.
func (op *operation) begin(ctx context.Context) (again bool, err error) {
	c, r := op.c, op.Conn
	if op.rare != nil && !c.held.Shares() && r.Session.Reading() {
		return false, errReading
	}
	t := newTx(txContext(ctx, op), c, op.opts, r)
	setting := ""
	if !c.held.Shares() {
		setting = c.source.pool.Settings().TakeNextTx()
	}
	switch {
	case op.rare != nil && op.rare.nested || c.held.Shares() && r.Session.InTx():
		return op.beginInside(ctx, t)
	case setting == "" && mayDefer(op):
		if err := deferOn(ctx, op, t); err != nil {
			return false, err
		}
	default:
		if again, err = op.beginNow(ctx, t, setting); again || err != nil {
			return again, err
		}
	}
	t.held.Began()
	op.begun(t)
	return false, nil
}

// mayDefer reports whether the session of op may begin a transaction with its first statement.
func mayDefer(op *operation) bool {
	c := op.c
	return isLazy(c) && c.on == nil && op.Conn.Session.BetweenTxs()
}

// deferOn leaves the begin of t to the first statement on op's session. Its errors are those of the
// driver's BeginTx.
func deferOn(ctx context.Context, op *operation, t *transaction) error {
	if err := ctx.Err(); err != nil {
		return ctxerr.Of(ctx, err)
	}
	if err := op.c.source.refusesTx(op.opts); err != nil {
		return err
	}
	op.Conn.Session.Defer(&t.held.Tx)
	op.c.held.Touch()
	return nil
}

// refusesTx is the driver's error for options that it refuses on every server.
func (s *Source) refusesTx(opts driver.TxOptions) error {
	if r, ok := s.config.Dialect.(dialects.TxRefuser); ok {
		return r.RefuseTx(opts)
	}
	return nil
}

// txContext is the context with which a transaction of op ends.
func txContext(ctx context.Context, op *operation) context.Context {
	if op.rare != nil {
		return op.rare.lifetime
	}
	return ctx
}

// beginNow begins t, and executes setting, a setting of the *sql.DB for the next transaction; "": none.
func (op *operation) beginNow(ctx context.Context, t *transaction, setting string) (again bool, err error) {
	c := op.c
	_, err = op.Conn.Session.Begin(ctx, &t.held.Tx, false)
	if again, err = op.finishUnexecuted(ctx, err); again || err != nil {
		if op.Said&dialects.Conflict != 0 {
			op.Scope.BeginConflict(c.source.report) // SQLite's BEGIN IMMEDIATE
		}
		if again && setting != "" {
			c.source.pool.Settings().KeepNextTx(setting)
		}
		return again, err
	}
	if setting == "" {
		return false, nil
	}
	return false, op.setForTx(ctx, setting)
}

// setForTx executes a setting of the *sql.DB for the transaction that has just begun. If
// that fails, the transaction is rolled back.
func (op *operation) setForTx(ctx context.Context, setting string) error {
	r := op.Conn
	err := r.Session.Command(ctx, setting)
	if err == nil {
		return nil
	}
	if _, done := r.Session.Rollback(ctx); !done {
		r.Session.MarkUnusable()
	}
	return fmt.Errorf("pooldriver: the transaction is rolled back, because a setting of the *sql.DB could not be applied to the transaction: %w", ctxerr.Of(ctx, err))
}

// beginInside begins a savepoint.
func (op *operation) beginInside(ctx context.Context, t *transaction) (again bool, err error) {
	r := op.Conn
	outer := r.Session.TxOptions()
	if op.opts != (driver.TxOptions{}) && op.opts != outer {
		return false, errTxOptions
	}
	t.held.Tx.Init(txContext(ctx, op), outer)
	if err = r.Session.Savepoint(ctx, &t.held.Tx); err != nil {
		op.Said = r.Session.Diagnose(err)
	}
	if again, err = op.finish(ctx, err); again || err != nil {
		return again, err
	}
	t.held.BeganSavepoint()
	op.begun(t)
	return false, nil
}

// begun makes t the result of BeginTx. If InTx has called BeginTx, t becomes the transaction of InTx.
func (op *operation) begun(t *transaction) {
	if op.Scope != nil {
		op.Scope.Begun(t)
	}
	op.tx = t
}

// beginWaits reports whether a begin may wait that op cannot leave to others. It is inlined.
func beginWaits(op *operation) bool {
	return op.Conn.Session.Deferred() != nil || op.kind == lending || op.Direct != nil
}

// beginFirst begins the transaction that waits for op, if op cannot begin it by itself.
func beginFirst(ctx context.Context, op *operation) (again bool, err error) {
	s := &op.Conn.Session
	switch {
	case s.Deferred() != nil:
		return op.beginDeferred(ctx)
	case !op.bypasses():
		return false, nil
	}
	if err = s.BeginNow(ctx); err == nil {
		return false, nil
	}
	op.Said = s.Diagnose(err)
	return op.finish(ctx, err)
}

// beginDeferred begins the transaction that was deferred on op's session. If the
// transaction cannot begin, each of its statements fails. If the context of the first
// statement has ended before, beginDeferred tries nothing, and the next statement may
// begin the transaction.
func (op *operation) beginDeferred(ctx context.Context) (again bool, _ error) {
	c := op.c
	r := op.Conn
	if err := r.Session.Deferred().Refused(); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if ctxsettings.Used() {
		again, err := op.useSettingsOf(r.Session.Deferred().Context(), session.ToPrepare)
		if again {
			return true, nil
		}
		if err != nil {
			return false, r.Session.DeferredBegan(err)
		}
	}
	touched := c.held.Touched()
	carried, err := r.Session.BeginDeferred(ctx, !op.bypasses())
	if again, err = op.finishUnexecuted(ctx, err); again {
		return true, nil
	}
	if err = r.Session.DeferredBegan(err); err == nil && carried {
		if !touched {
			c.held.Untouch() // nothing was sent
		}
		op.begins = true
	}
	return false, err
}

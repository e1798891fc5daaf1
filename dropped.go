package pooldriver

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/callsite"
	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// Session state, and transactions begun by hand, that end with their statement. An explicit
// task, a transaction and a *sql.Conn keep what a statement sets. On a *sql.DB the connection goes back after the
// statement and is cleaned. That is right, and the program should know it.

// recordSetting remembers a statement that sets session state outside of explicit tasks,
// before it is sent. connpool's GiveBack says what becomes of the state.
func (c *checkout) recordSetting(op *operation) {
	if op.Effect&pinning.ChangesSession != 0 && !c.bound.shares {
		op.real.RecordSetting(op.Text, op.Args)
	}
}

// errLeftOpen is the error of an Exec on a *sql.DB after which the server has a
// transaction open.
var errLeftOpen = errors.New("pooldriver: the statement has left a transaction open on a *sql.DB, whose next statement may run on another connection: the text was executed, and what it had left open is rolled back; begin the transaction by BeginTx, or run all of it on one *sql.Conn, or in a task (pooldriver.WithTask)")

// errPrivate is the error of an Exec on a *sql.DB which has attached a database in memory.
var errPrivate = errors.New("pooldriver: a database in memory was attached on a *sql.DB: each connection would have another one, and lose it; attach 'file:NAME?mode=memory&cache=shared', which all connections open, or attach it on one *sql.Conn, or in a task (pooldriver.WithTask)")

// refuseLeft returns the error of an Exec on a *sql.DB that has attached a database in
// memory, or has left a transaction open, which it rolls back. Over plain database/sql the
// next statements would run on this connection or on another one; here they would certainly
// be outside of the transaction, and commit one by one.
func (c *checkout) refuseLeft(ctx context.Context, op *operation) error {
	if c.bound.shares || c.tx != nil {
		return nil
	}
	r, open := op.real, leavesOpen(op)
	private := !open && op.Effect&pinning.ChangesSession != 0 && c.connector.pool.Settings().Private(op.Text)
	if !open && !private || !droppedstate.OfDB() {
		return nil
	}
	if private {
		return errPrivate
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.connector.config.CleanTimeout)
	defer cancel()
	rolledBack, done := r.Rollback(ctx)
	if rolledBack {
		c.connector.report.Rollbacks.Add(1)
	}
	if !done {
		r.MarkUnusable()
	}
	return errLeftOpen
}

// leavesOpen reports whether op has left a transaction open. The server's word judges, not
// the text.
func leavesOpen(op *operation) bool {
	switch op.real.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed:
		return true
	case dialects.TxImplicit: // autocommit is off; a script (a dump) may leave it so, and is cleaned
		return !dialects.MayBeScript(op.Text)
	}
	return false
}

// sharesState reports whether op, which has run on r in an explicit task, has set state that
// another checkout of the task uses, too: a lock there excludes none of them.
func (c *checkout) sharesState(op *operation) bool {
	return c.bound.shares && op.Effect&pinning.ChangesSession != 0 && c.bound.users(op.real) > 1
}

// tellShared tells of a statement whose state is shared. It holds no lock.
func (c *checkout) tellShared(op *operation) {
	c.connector.report.StateShared(whoIs(c.label, op.sharing), op.Text, func() string {
		return stackText(frames(new(callsite.Table).Here(0)))
	})
}

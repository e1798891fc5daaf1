package virtual

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/callsite"
	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// This file finds session state, and transactions begun by hand, that end with their statement.
// An explicit task, a transaction and a *sql.Conn keep what a statement sets. On a *sql.DB the
// connection goes back after the statement and is cleaned. That is right, but the program should
// know it.

// errLeftOpen is the error of an Exec on a *sql.DB after which the server has a
// transaction open.
var errLeftOpen = errors.New("pooldriver: the statement was executed and has left a transaction open on a *sql.DB; the transaction is rolled back, because the next statement may run on another connection; use BeginTx, or run all statements of the transaction on one *sql.Conn, or in a task (pooldriver.WithTask)")

// refuseLeft returns the error of an Exec on a *sql.DB that has set a setting which cannot hold for all
// connections, or has left a transaction open. refuseLeft rolls that transaction back. Over plain
// database/sql the next statements would run on this connection or on another one. Here the next
// statements would certainly be outside of the transaction, and commit one by one.
func (op *operation) refuseLeft(ctx context.Context) error {
	c := op.c
	if c.Shares() || c.HasTx() {
		return nil
	}
	r, open := op.Conn, op.leavesOpen()
	var refusal error
	if !open && op.Effect&pinning.ChangesSession != 0 {
		refusal = c.source.pool.Settings().Refusal(op.Text)
	}
	if !open && refusal == nil || !droppedstate.OfDB() {
		return nil
	}
	if refusal != nil {
		return refusal
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.source.config.CleanTimeout)
	defer cancel()
	rolledBack, done := r.Rollback(ctx)
	if rolledBack {
		c.source.report.Rollbacks.Add(1)
	}
	if !done {
		r.MarkUnusable()
	}
	return errLeftOpen
}

// leavesOpen reports whether op has left a transaction open. The server's answer decides, not the
// text.
func (op *operation) leavesOpen() bool {
	switch op.Conn.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed:
		return true
	case dialects.TxImplicit: // autocommit is off; a script (a dump) may leave it off, and the session is cleaned
		return !dialects.MayBeScript(op.Text)
	}
	return false
}

// sharesState reports whether op, in an explicit task, has set state on a session that another
// checkout of the task uses, too. An advisory lock on that session excludes none of these checkouts.
func (op *operation) sharesState() bool {
	c := op.c
	return c.Shares() && op.Effect&pinning.ChangesSession != 0 && c.SharesState()
}

// tellShared logs a statement whose session state another checkout of its task uses. The caller
// holds no lock.
func (op *operation) tellShared() {
	c := op.c
	c.source.report.StateShared(binding.WhoIs(c.Label(), op.sharing), op.Text, func() string {
		return callsite.Text(new(callsite.Table).Here(0).Frames())
	})
}

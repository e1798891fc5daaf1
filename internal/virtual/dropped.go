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

// recordSetting remembers a statement that sets session state outside of explicit tasks,
// before it is sent. connpool's GiveBack says what becomes of the state.
func (op *operation) recordSetting() {
	if op.Effect&pinning.ChangesSession != 0 && !op.c.Shares() {
		op.Conn.RecordSetting(op.Text, op.Args)
	}
}

// errLeftOpen is the error of an Exec on a *sql.DB after which the server has a
// transaction open.
var errLeftOpen = errors.New("pooldriver: the statement was executed and has left a transaction open on a *sql.DB; the transaction is rolled back, because the next statement may run on another connection; use BeginTx, or run all statements of the transaction on one *sql.Conn, or in a task (pooldriver.WithTask)")

// errPrivate is the error of an Exec on a *sql.DB which has attached a database in memory.
var errPrivate = errors.New("pooldriver: a database in memory was attached on a *sql.DB: each connection would have a database of its own, and lose it; attach 'file:NAME?mode=memory&cache=shared', which all connections open, or attach the database on one *sql.Conn or in a task (pooldriver.WithTask)")

// refuseLeft returns the error of an Exec on a *sql.DB that has attached a database in memory, or
// has left a transaction open. refuseLeft rolls that transaction back. Over plain database/sql
// the next statements would run on this connection or on another one. Here they would certainly
// be outside of the transaction, and commit one by one.
func (op *operation) refuseLeft(ctx context.Context) error {
	c := op.c
	if c.Shares() || c.HasTx() {
		return nil
	}
	r, open := op.Conn, op.leavesOpen()
	private := !open && op.Effect&pinning.ChangesSession != 0 && c.source.pool.Settings().Private(op.Text)
	if !open && !private || !droppedstate.OfDB() {
		return nil
	}
	if private {
		return errPrivate
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
// checkout of the task uses, too. A lock there excludes none of these checkouts.
func (op *operation) sharesState() bool {
	c := op.c
	return c.Shares() && op.Effect&pinning.ChangesSession != 0 && c.SharesState(&op.Want)
}

// tellShared logs a statement whose session state another checkout of its task uses. The caller
// holds no lock.
func (op *operation) tellShared() {
	c := op.c
	c.source.report.StateShared(binding.WhoIs(c.Label(), op.sharing), op.Text, func() string {
		return callsite.Text(new(callsite.Table).Here(0).Frames())
	})
}

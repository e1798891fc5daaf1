package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

// Commit commits t, or releases its savepoint. After an error of the driver the transaction
// may be committed or not. After an error of this package it is rolled back.
func (t *Tx) Commit() error {
	s := t.session
	if s.debts.Any() {
		defer s.settleNow()
	}
	if !s.inTask && t.savepoint == "" {
		if !t.hasBegun() {
			s.forget(t)
			return t.refused
		}
		if s.TxLost() {
			err := s.LostTx()
			_ = t.rollbackReal()
			s.forget(t)
			return err
		}
		err := t.commitReal()
		s.forget(t)
		return err
	}
	for _, deeper := range t.deeper() {
		if deeper.ctx.Err() != nil { // database/sql is about to roll it back
			_ = deeper.End()
			break
		}
	}
	if !t.hasBegun() && !s.TxLost() {
		s.forget(t)
		return t.refused
	}
	if err := t.mayCommit(); err != nil {
		_ = t.rollback()
		return err
	}
	if t.savepoint != "" {
		return t.commitSavepoint()
	}
	err := t.commitReal()
	s.forget(t)
	if err != nil {
		t.insist() // the transaction may still be open: SQLite refuses a COMMIT while it is busy
	}
	return err
}

// mayCommit tells why t cannot be committed.
func (t *Tx) mayCommit() error {
	switch {
	case t.session.TxLost():
		return t.session.LostTx()
	case t.lost != nil:
		return t.lost
	case t.session.inTask && len(t.deeper()) > 0: // else one program begins them all, as it does with pgx
		return ErrOpenInside
	}
	return t.session.ReadAhead(context.Background())
}

func (t *Tx) commitSavepoint() error {
	if err := t.release(); err != nil {
		return err
	}
	t.session.forget(t)
	if outer := t.session.Innermost(); outer != nil {
		outer.joined = outer.joined || t.joined
	}
	return nil
}

// End rolls t back. If the end of a context is the reason, the other users of the
// transaction are told.
func (t *Tx) End() error {
	if t.session.debts.Any() {
		defer t.session.settleNow()
	}
	if !t.session.inTask && t.savepoint == "" {
		err := t.rollbackReal()
		t.session.forget(t)
		return err
	}
	joined, since := t.usedByOthers(), t.session.Since()
	err := t.rollback()
	t.lose(joined, since)
	return err
}

// Abandon removes t, which cannot be ended, from its session, and tells the other users of
// the transaction if a context has ended it.
func (t *Tx) Abandon() {
	joined, since := t.usedByOthers(), t.session.Since()
	t.session.forget(t)
	t.lose(joined, since)
}

// Forget removes t from its session.
func (t *Tx) Forget() { t.session.forget(t) }

// What is lost with t is read before the rollback, and told after it: a statement that waits for the end of t must not
// fail while what t has done is still there.

// usedByOthers reports whether statements of no transaction of BeginTx ran in t, or in a savepoint inside it.
func (t *Tx) usedByOthers() bool {
	return t.joined || slices.ContainsFunc(t.deeper(), func(inside *Tx) bool { return inside.joined })
}

// lose tells the other users of t, which has ended, that t is lost, if its context has ended, perhaps during the
// rollback: otherwise the program itself has ended t. They are the statements that have joined it, and the
// transactions around it whose own statements ran in it.
func (t *Tx) lose(joined bool, since time.Time) {
	if t.ctx.Err() == nil {
		return
	}
	loss := LostError{what: whatTx, since: since, cause: ctxerr.WhatEnded(t.ctx)}
	if joined {
		whole := loss
		t.session.owner.CountedOnTx(&whole)
	}
	loss.inside = true
	for _, around := range t.outer {
		around.lost = &loss
	}
}

func (t *Tx) rollback() (err error) {
	s := t.session
	if rows := s.rows.Load(); rows != nil {
		// The rollback ends rows that the transaction has opened. Their owner gets those
		// that fit into memory.
		if e := s.ReadAhead(context.Background()); e != nil {
			rows.Abandon(e)
		}
	}
	switch {
	case t.savepoint == "":
		err = t.rollbackReal()
	case s.TxLost():
	default:
		s.schemaGeneration++
		if err = t.execute(s.traits.SavepointTexts().RollBack + " " + t.savepoint); err == nil {
			err = t.release()
		}
		if err != nil { // changes inside the savepoint must not be committed with the rest
			s.TxEnded()
		}
	}
	s.forget(t)
	if err != nil && t.savepoint == "" {
		t.insist()
	}
	return err
}

// release ends a savepoint, if the database has a statement for that.
func (t *Tx) release() error {
	text := t.session.traits.SavepointTexts().Release
	if text == "" {
		return nil
	}
	return t.execute(text + " " + t.savepoint)
}

// commitReal commits the driver's transaction. When the answer to a COMMIT is lost, a driver
// may say that the connection was closed before, and that it is safe to try again (pgx up to 5.12
// did; a connector of a program may still). That is believed only if the dialect
// counts what is sent, and nothing was sent. Where the dialect does not count, ErrBadConn
// alone is believed, unless the driver has the trait BadConnUnsure.
func (t *Tx) commitReal() error {
	s := t.session
	before, counted := s.server.Sent()
	err := t.run(t.real.Commit)
	if err == nil {
		return nil
	}
	// Only the driver's own error counts: a context may add the error of another transaction.
	t.conflict = s.env.Dialect.Diagnose(err)&dialects.Conflict != 0
	believed := !counted && !s.traits.BadConnUnsure
	if counted {
		if after, _ := s.server.Sent(); after == before {
			return ctxerr.Of(t.ctx, err)
		}
	}
	if ctxerr.SaysSafe(err) || errors.Is(err, driver.ErrBadConn) && !believed {
		err = ctxerr.Unclear(ctxerr.ErrCommitUnclear, err)
	}
	return ctxerr.Of(t.ctx, err)
}

// insist sends a ROLLBACK after the driver has failed to end the transaction. Otherwise the
// task's next statement would run in it.
func (t *Tx) insist() {
	s := t.session
	if s.InTx() && t.command(s.rollBack) != nil {
		s.MarkUnusable()
	}
}

// forget removes a transaction, with the savepoints inside it.
func (s *Session) forget(t *Tx) {
	if s.deferred == t {
		s.deferred = nil
	}
	if t.savepoint != "" {
		if i := slices.Index(s.inner, t); i >= 0 {
			endInside(s.inner[i+1:])
			s.inner = s.inner[:i]
		}
	} else if s.tx == t {
		endInside(s.inner)
		s.tx, s.inner, s.txFailed = nil, nil, false
		s.health = s.health.after(txForgotten)
	}
}

// endInside ends savepoints with the transaction around them: their later end is no loss for it.
func endInside(inner []*Tx) {
	for _, t := range inner {
		t.outer = nil
	}
}

func (t *Tx) execute(text string) error {
	return t.command(func(ctx context.Context) error { return t.session.Command(ctx, text) })
}

// command runs a command of this package. It does not end with BeginTx's context, but after
// CleanTimeout.
func (t *Tx) command(how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.session.env.CleanTimeout)
	defer cancel()
	return t.run(func() error { return how(ctx) })
}

// rollbackReal rolls the driver's transaction back.
func (t *Tx) rollbackReal() error {
	if !t.hasBegun() {
		return nil
	}
	s := t.session
	if t.ctx.Err() != nil { // nobody waits; the program's own rollback takes as long as it takes
		if t.kept != nil {
			defer t.kept.release(s.env.CleanTimeout)()
		}
		defer s.spare(s.severAfter())
	}
	err := t.run(t.real.Rollback)
	if t.ctx.Err() != nil && !s.traits.StatusKnown && (!s.canReset || s.conn.Validator == nil) {
		// This is database/sql's rule: such a driver cannot say whether the connection
		// has survived the end of the transaction's context.
		if !s.irreplaceable {
			s.MarkUnusable()
		}
		s.health = s.health.after(txCallFailed)
	}
	return err
}

// run calls the driver for the end of a transaction.
func (t *Tx) run(how func() error) error {
	s := t.session
	s.running++
	err := how()
	s.running--
	s.namesSettle(t.savepoint == "")
	s.settings.doubt(false)
	if err != nil {
		s.health = s.health.after(txCallFailed)
		s.Diagnose(err) // MySQL may refuse to write as late as at COMMIT
	}
	return err
}

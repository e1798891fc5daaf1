package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// Tx is a transaction on a session. In a task, a transaction that begins while another one
// is open is a savepoint. The session's lock protects its fields, except those that do not
// change.
type Tx struct {
	session   *Session  // nil: deferred, and without a session yet
	real      driver.Tx // nil: not begun, or a savepoint
	savepoint string    // its name; empty: not a savepoint
	opts      driver.TxOptions
	ctx       context.Context                   // BeginTx's
	kept      *txContext                        // what the driver got, under the trait TxKeepsContext
	merged    atomic.Pointer[mergedctx.Context] // bounds the begin; nil after Release
	refused   error                             // why a deferred begin has failed
	since     time.Time
	// replaced: the driver has begun another transaction on the same session, although this one
	// was open. The driver decides what that means.
	replaced bool
	joined   bool // statements that belong to no transaction of BeginTx ran in it
	// outer are the transactions around it whose own statements ran in it.
	outer    []*Tx
	conflict bool  // the driver's COMMIT has failed with dialects.Conflict
	lost     error // why it cannot be committed; nil: it can
}

// Init makes t a transaction that has not begun.
func (t *Tx) Init(ctx context.Context, opts driver.TxOptions) { t.ctx, t.opts = ctx, opts }

// Context is BeginTx's. It needs no lock.
func (t *Tx) Context() context.Context { return t.ctx }

// Nested reports whether t is a savepoint. It needs no lock.
func (t *Tx) Nested() bool { return t.savepoint != "" }

// TxCause is why the context of the open transaction has ended; nil: it has not ended.
func (s *Session) TxCause() error {
	if s.tx == nil {
		return nil
	}
	return context.Cause(s.tx.ctx)
}

// ReadOnly reports whether the program has begun it as a read-only one.
func (t *Tx) ReadOnly() bool { return t.opts.ReadOnly }

// CommitConflict reports whether Commit has failed because another transaction was in the
// way. It needs no lock after Commit.
func (t *Tx) CommitConflict() bool { return t.conflict }

// Lost is why the transaction cannot be committed: its own statements ran inside a savepoint
// whose context has ended. It is nil otherwise.
func (t *Tx) Lost() error { return t.lost }

// Refused is why a deferred begin has failed.
func (t *Tx) Refused() error { return t.refused }

// Refuse makes a deferred begin fail: there was no connection for it.
func (t *Tx) Refuse(why error) { t.refused = why }

// Join records that a statement that belongs to no transaction of BeginTx ran in t.
func (t *Tx) Join() { t.joined = true }

// Ran records in the open savepoints inside t that a statement of t's own ran in them.
func (t *Tx) Ran() {
	for _, inside := range t.deeper() {
		if !slices.Contains(inside.outer, t) {
			inside.outer = append(inside.outer, t)
		}
	}
}

// Release frees the context that bounded the begin. It needs no lock.
func (t *Tx) Release() {
	if t.merged.Load() != nil {
		t.merged.Swap(nil).Release()
	}
}

// Begun reports whether a transaction of BeginTx is open, or was open when the connection
// died.
func (s *Session) Begun() bool { return s.tx != nil || len(s.inner) > 0 }

// HasTx reports whether BeginTx has begun the outermost transaction.
func (s *Session) HasTx() bool { return s.tx != nil }

// Depth is the number of savepoints that are open.
func (s *Session) Depth() int { return len(s.inner) }

// InTx reports whether a transaction is open, by BeginTx or by a text.
func (s *Session) InTx() bool { return s.Begun() || s.inDriversTx() }

// inDriversTx reports whether a transaction is open by the server's last answer.
func (s *Session) inDriversTx() bool {
	status := s.TxStatus()
	return status == dialects.TxOpen || status == dialects.TxFailed
}

// Innermost is the transaction or savepoint in which the next statement runs. It is nil if
// none is open, or if a text has begun it.
func (s *Session) Innermost() *Tx {
	if n := len(s.inner); n > 0 {
		return s.inner[n-1]
	}
	return s.tx
}

// at is the transaction at a depth. Depth 0 is the outermost one: nil if a text has begun it.
func (s *Session) at(depth int) *Tx {
	if depth == 0 {
		return s.tx
	}
	return s.inner[depth-1]
}

// Outlived is the outermost transaction whose context has ended, nil if there is none.
// database/sql is about to roll it back in a goroutine of its own. The caller may do so
// first.
func (s *Session) Outlived() *Tx {
	for depth := range len(s.inner) + 1 {
		if t := s.at(depth); t != nil && t.ctx.Err() != nil {
			return t
		}
	}
	return nil
}

// TxLost reports whether a transaction of BeginTx is gone that the program has not ended yet, so that further
// statements would run outside of it. Without a task, the driver itself says that a connection is lost.
//
// After each error TxLost asks a database that may roll a transaction back by itself. It is called before
// a statement, and before the end of the transaction.
func (s *Session) TxLost() bool {
	return (s.txFailed || s.health >= txGone) && txLost(s)
}

// txLost is the part of TxLost that is rarely needed, so that TxLost is inlined.
func txLost(s *Session) bool {
	if a, ok := s.server.(dialects.TxAsker); ok && s.txFailed && s.tx != nil && s.tx.hasBegun() && !s.Unusable() {
		switch s.askTx(a) {
		case dialects.TxNone:
			s.TxEnded()
		case dialects.TxUnknown: // rows are open, so the next statement fails as the last one
			return s.health == txGone && s.Begun()
		}
	}
	s.txFailed = false
	return (s.health == txGone || s.health == unusable && s.inTask) && s.Begun()
}

func (s *Session) askTx(a dialects.TxAsker) dialects.TxStatus {
	if s.guard != nil {
		return s.status()
	}
	return a.AskTx()
}

// TxEnded records that the server has ended the transaction by an error.
func (s *Session) TxEnded() { s.health = s.health.after(txEnded) }

// Open reports whether t is open on its session.
func (t *Tx) Open() bool {
	return t.session.tx == t || slices.Contains(t.session.inner, t)
}

// OverOn reports whether t is over for a statement on s. If t is of another session, it is over, and that session may be
// another one's by now, under a lock of its own.
func (t *Tx) OverOn(s *Session) bool { return t.session != s || !t.Open() && !t.replaced }

// deeper are the open savepoints inside t.
func (t *Tx) deeper() []*Tx {
	inner := t.session.inner
	return inner[slices.Index(inner, t)+1:]
}

// Began makes t the outermost transaction. Begin has begun it, or Defer has deferred it.
func (s *Session) Began(t *Tx, since time.Time) {
	s.schemaGeneration++
	if before := s.tx; before != nil {
		before.replaced = true
	}
	t.session, t.since = s, since
	s.tx = t
}

// Savepoint begins t as a savepoint in the transaction that is open. After a success
// BeganSavepoint follows.
func (s *Session) Savepoint(ctx context.Context, t *Tx) error {
	t.session, t.savepoint = s, "pooldriver_"+strconv.Itoa(len(s.inner)+1)
	s.call()
	err := s.Command(ctx, s.traits.SavepointTexts().Begin+" "+t.savepoint)
	s.returned()
	return err
}

// BeganSavepoint makes t, which Savepoint has begun, the innermost transaction.
func (s *Session) BeganSavepoint(t *Tx, since time.Time) {
	t.since = since
	s.inner = append(s.inner, t)
}

// TxOptions are the options of the outermost transaction that is open.
func (s *Session) TxOptions() driver.TxOptions {
	if s.tx == nil {
		return driver.TxOptions{}
	}
	return s.tx.opts
}

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

// Since is when the outermost transaction has begun.
func (s *Session) Since() time.Time {
	if s.tx != nil {
		return s.tx.since
	}
	if len(s.inner) > 0 {
		return s.inner[0].since
	}
	return time.Time{}
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

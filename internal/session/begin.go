package session

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// A deferred begin: BeginTx sends nothing, and the first statement begins the
// transaction.

// suspectTx is the effect of a transaction that did not begin as it should.
const suspectTx = dialects.Suspect | dialects.TxControl

var errNotBegun = errors.New("pooldriver: the transaction did not begin")

// Defer has t begin with the next statement.
func (s *Session) Defer(t *Tx) { t.session, s.deferred = s, t }

// Deferred is the transaction that begins with the next statement, nil if there is none.
func (s *Session) Deferred() *Tx { return s.deferred }

// BetweenTxs reports whether no transaction is open. To begin one inside another is for
// the driver to refuse or to do, at once.
func (s *Session) BetweenTxs() bool {
	if s.Begun() {
		return false
	}
	switch s.TxStatus() {
	case dialects.TxNone:
		return true
	case dialects.TxUnknown:
		return s.effect&dialects.TxControl == 0
	}
	return false
}

// BeginDeferred begins the transaction that was deferred, before the statement of ctx.
// DeferredBegan follows. If carry is true that statement may carry the begin: then nothing
// was sent if carried is true.
func (s *Session) BeginDeferred(ctx context.Context, carry bool) (carried bool, err error) {
	s.deferred.refused = errNotBegun // for a driver that panics
	return s.Begin(ctx, s.deferred, carry)
}

// DeferredBegan says how the begin of a deferred transaction has ended: err is nil, or
// what each of its statements gets.
func (s *Session) DeferredBegan(err error) error {
	t := s.deferred
	err = ctxerr.Of(t.ctx, err)
	if t.refused = err; err == nil {
		s.deferred = nil
	} else if s.health == txGone { // there was none
		s.health = s.health.after(txForgotten)
	}
	return err
}

// Begin begins the driver's transaction: by a message of its own or, where the statement
// that is to follow can carry it and the driver can do so, with that one.
func (s *Session) Begin(ctx context.Context, t *Tx, carry bool) (carried bool, err error) {
	t.session = s
	// The first statement's context bounds the beginning, too, and nothing else: a
	// driver may watch what it is given for as long as the transaction lasts.
	given, merged := mergedctx.New(t.ctx, ctx)
	defer merged.Detach()
	t.merged.Store(merged)
	if s.traits.TxKeepsContext {
		t.kept = newTxContext(given)
		given = t.kept
	}
	before := dialects.TxUnknown
	if s.inTask {
		before = s.TxStatus()
	}
	s.call()
	err = errors.ErrUnsupported
	if lazy, ok := s.server.(dialects.LazyBeginner); ok && carry {
		t.real, err = lazy.BeginWithNext(given, t.opts)
		carried = err == nil
	}
	if err == errors.ErrUnsupported {
		t.real, err = s.conn.Begin(given, t.opts)
	}
	s.returned()
	if err != nil {
		s.failedToBegin(t, before)
	}
	return carried, err
}

// failedToBegin is for a transaction that may have begun all the same, or left behind for
// the next one what it set for this one.
func (s *Session) failedToBegin(t *Tx, before dialects.TxStatus) {
	s.health, t.real = s.health.after(txCallFailed), nil
	t.Release()
	if t.opts != (driver.TxOptions{}) {
		s.effect |= suspectTx
	}
	if before == dialects.TxNone && s.inDriversTx() && t.command(s.server.Rollback) != nil {
		s.MarkUnusable() // the task's next statements would be in it, and nobody ends it
	}
}

// Again defers the begin anew, for another session: this one was dead before anything was
// sent.
func (t *Tx) Again() { t.session, t.real, t.kept, t.refused = nil, nil, nil, nil }

// hasBegun reports whether t has begun: it has the driver's transaction, or is a savepoint.
func (t *Tx) hasBegun() bool { return t.real != nil || t.savepoint != "" }

package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// A deferred begin: BeginTx sends nothing, and the first statement begins the
// transaction.

// suspectTx is the effect of a BeginTx that has failed: its options may be in force.
const suspectTx = dialects.Suspect | dialects.TxControl

var errNotBegun = errors.New("pooldriver: the transaction did not begin")

// Defer lets t begin with the next statement. Began follows.
func (s *Session) Defer(t *Tx) { t.session, s.deferred = s, t }

// Deferred is the transaction that begins with the next statement, nil if there is none.
func (s *Session) Deferred() *Tx { return s.deferred }

// BetweenTxs reports whether no transaction is open, so that a begin can be deferred. A
// begin inside a transaction goes to the driver at once, which may refuse it.
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
// DeferredBegan follows. If carry is true, the begin may travel with that statement. carried
// reports that it will: nothing was sent yet.
func (s *Session) BeginDeferred(ctx context.Context, carry bool) (carried bool, err error) {
	s.deferred.refused = errNotBegun // the answer if the driver panics
	return s.Begin(ctx, s.deferred, carry)
}

// BeginError names BEGIN in the error of a deferred transaction that cannot begin: the error comes with
// a statement.
func BeginError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(dialects.DeferredBegin+"%w", err)
}

// DeferredBegan records how the begin of a deferred transaction has ended. If err is not
// nil, each of its statements fails with the error that DeferredBegan returns.
func (s *Session) DeferredBegan(err error) error {
	t := s.deferred
	err = BeginError(ctxerr.Of(t.ctx, err))
	if t.refused = err; err == nil {
		s.deferred = nil
	} else if s.health == txGone { // no transaction was open that could be gone
		s.health = s.health.after(txForgotten)
	}
	return err
}

// Begin begins the driver's transaction. After a success Began follows. If carry is true and
// the dialect can do so, nothing is sent and the begin travels with the next statement: then
// carried is true.
func (s *Session) Begin(ctx context.Context, t *Tx, carry bool) (carried bool, err error) {
	t.session = s
	// The first statement's context bounds the begin and nothing else. A driver may
	// watch the context that it is given as long as the transaction lasts.
	given := ctx
	if s.deferred == t || !s.traits.TxKeepsContext || s.traits.TxDerivesContext {
		var merged *mergedctx.Context
		if given, merged = mergedctx.New(t.ctx, ctx); merged != nil {
			t.merged.Store(merged)
			defer merged.Detach()
		}
	} // else ctx is BeginTx's, as far as the begin goes
	if s.traits.TxKeepsContext {
		t.kept = newTxContext(t.ctx, given)
		given = t.kept
		defer t.kept.begun()
	}
	before := dialects.TxUnknown
	if s.inTask {
		before = s.TxStatus()
	}
	s.call()
	err = errors.ErrUnsupported
	if s.guard != nil {
		t.real, err = s.guard.Begin(given, t.opts)
	} else if carry {
		if lazy, ok := s.server.(dialects.LazyBeginner); ok {
			t.real, err = lazy.BeginWithNext(given, t.opts)
			carried = err == nil
		}
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

// BeginNow sends a begin that still waits for a statement: what comes next cannot carry it.
func (s *Session) BeginNow(ctx context.Context) error {
	lazy, ok := s.server.(dialects.LazyBeginner)
	if !ok || s.tx == nil || s.guard != nil {
		return nil
	}
	s.call()
	err := lazy.BeginNow(ctx)
	s.returned()
	return err
}

// failedToBegin handles a BeginTx that has failed. The transaction may have begun all the
// same, and the driver may have set its options for the next one.
func (s *Session) failedToBegin(t *Tx, before dialects.TxStatus) {
	s.health, t.real = s.health.after(txCallFailed), nil
	t.Release()
	if t.opts != (driver.TxOptions{}) {
		s.effect |= suspectTx
	}
	if before == dialects.TxNone && s.inDriversTx() && t.command(s.rollBack) != nil {
		s.MarkUnusable() // later statements of the task would run in the transaction, and nobody would end it
	}
}

// Again defers the begin once more, for another session. The session of t is dead, and what was sent
// in t has no effect.
func (t *Tx) Again() {
	t.Release()
	t.session, t.real, t.kept, t.refused = nil, nil, nil, nil
}

// hasBegun reports whether t has begun: it has the driver's transaction, or is a savepoint.
func (t *Tx) hasBegun() bool { return t.real != nil || t.savepoint != "" }

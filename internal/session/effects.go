package session

import (
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// meansAnew are the effects after which a prepared text may mean another statement.
const meansAnew = dialects.ForgetPrepared | dialects.Rereads

// This file records what statements leave behind in the session.

// NeedsSession reports whether a statement has to run on the task's main session, because it
// changes session state or may begin or end a transaction.
func NeedsSession(e dialects.Effect) bool {
	return e&(pinning.ChangesSession|dialects.TxControl|dialects.ForgetPrepared|dialects.NamedPrepared) != 0
}

// LeavesNothing reports whether an effect shows that a statement changes only data.
func LeavesNothing(e dialects.Effect) bool { return e&^dialects.Writes == dialects.Clean }

// Effect is the effect of all statements since the last reset.
func (s *Session) Effect() dialects.Effect { return s.effect }

// HiddenTx reports whether a text has begun a transaction. It matters where the server does
// not tell the transaction's state.
func (s *Session) HiddenTx() bool { return s.hiddenTx }

// Stateful reports whether the borrower's statements have changed the session.
func (s *Session) Stateful() bool { return s.stateful }

// ByHand reports whether a text, and not BeginTx, has begun the outermost transaction that is
// open.
func (s *Session) ByHand() bool { return s.byHand }

// KeepsForAll says that every session gets the state that the borrower has set. Cleaning must
// not remove it.
func (s *Session) KeepsForAll() { s.effect &^= pinning.ChangesSession }

// recordStatement is called before a statement is sent. A statement that fails may have had
// a part of its effect.
func (s *Session) recordStatement(st *Statement) {
	s.RecordEffect(st.Effect)
	if s.tx != nil && s.traits.PreparedAges && !(LeavesNothing(st.Effect) && dialects.OnlyData(st.Text)) {
		s.schemaGeneration++
	}
}

// RecordEffect records an effect that the session is about to have.
func (s *Session) RecordEffect(e dialects.Effect) {
	s.effect |= e
	if e&meansAnew != 0 && s.traits.PreparedAges {
		s.namesChanged = true
	}
	if e&dialects.TxControl != 0 && e&dialects.Suspect == 0 {
		s.hiddenTx = true
	}
}

// RecordResult is called after a statement has run. If the statement changes what texts mean,
// prepared statements are not used again. If it may begin or end a transaction and
// has failed, the session is uncertain: not every protocol tells the transaction's state
// with an error. After driver.ErrSkip nothing is recorded, because nothing ran.
func (s *Session) RecordResult(e dialects.Effect, err error) {
	if err != nil || !LeavesNothing(e) {
		s.recordResultSlow(e, err)
	}
}

// EndLoan is RecordResult for what a function of Raw has done.
func (s *Session) EndLoan(e dialects.Effect, err error) {
	if s.guard != nil {
		s.guard.EndLoan()
	}
	s.RecordResult(e, err)
	if err != nil {
		s.failed()
	}
	s.settle()
}

// recordResultSlow is the part of RecordResult that is rarely needed. It is a function of its
// own so that RecordResult is inlined.
func (s *Session) recordResultSlow(e dialects.Effect, err error) {
	if err == driver.ErrSkip {
		return
	}
	s.settings.doubt(!LeavesNothing(e))
	if e&meansAnew != 0 || s.traits.PreparedKeepsTypes && e&dialects.Stateful != 0 {
		s.stmts.MarkAllStale()
	}
	if e&dialects.TxControl != 0 && s.namesChanged {
		s.namesSettle(err == nil && s.TxStatus() == dialects.TxNone) // after an error the driver is not asked
	}
	if err != nil {
		if e&dialects.TxControl != 0 {
			s.health = s.health.after(txCallFailed)
		}
		return
	}
	// The program counts on its state and its transaction from now on, even if the
	// connection dies before Observe is called.
	if e&pinning.ChangesSession != 0 {
		s.stateful = true
	}
	if e&dialects.TxControl != 0 && s.tx == nil {
		s.byHand = opened(s.lastTxStatus())
	}
}

// lastTxStatus is TxStatus. If the connection is closed, and the dialect knows the server's last
// answer, lastTxStatus is that answer.
func (s *Session) lastTxStatus() dialects.TxStatus {
	status := s.TxStatus()
	if last, ok := s.server.(dialects.LastTxStatus); ok && s.guard == nil && status == dialects.TxLost {
		return last.LastTxStatus()
	}
	return status
}

func opened(status dialects.TxStatus) bool {
	return status == dialects.TxOpen || status == dialects.TxFailed || status == dialects.TxLost
}

// Observe is called at the end of an operation of a task. open says that a transaction pins the
// session. If the session is lost, nothing changes: the task has to be told what the session had.
func (s *Session) Observe(open bool) {
	if !s.Unusable() {
		s.stateful = s.effect&pinning.ChangesSession != 0
		s.byHand = s.tx == nil && open
	}
}

// namesSettle is called at the end of a transaction or of a savepoint. A rollback restores the earlier
// meaning of names and literals. A statement that was prepared since they changed keeps the types of
// other tables, so no statement is used again. whole is true for a transaction: after its end no
// rollback can restore anything.
func (s *Session) namesSettle(whole bool) {
	if s.namesChanged {
		s.stmts.MarkAllStale()
		s.namesChanged = !whole
	}
}

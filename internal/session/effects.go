package session

import (
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
)

// What statements leave behind in the session.

// ChangesSession are the effects that are there for the task's later statements.
const ChangesSession = dialects.Stateful | dialects.Unresettable

// NeedsSession reports whether a statement has to run on the task's session, because it
// begins or changes one.
func NeedsSession(e dialects.Effect) bool {
	return e&(ChangesSession|dialects.TxControl|dialects.ForgetPrepared|dialects.NamedPrepared) != 0
}

// LeavesNothing reports whether a statement's text shows that it changes nothing but
// data.
func LeavesNothing(e dialects.Effect) bool { return e&^dialects.Writes == dialects.Clean }

// Effect is what has run since the session was last reset.
func (s *Session) Effect() dialects.Effect { return s.effect }

// HiddenTx reports that a text has said that a transaction begins, where nobody can be
// asked.
func (s *Session) HiddenTx() bool { return s.hiddenTx }

// Stateful reports whether the borrower's statements have changed the session.
func (s *Session) Stateful() bool { return s.stateful }

// ByHand reports whether the outermost transaction that is open was begun by a text.
func (s *Session) ByHand() bool { return s.byHand }

// KeepsForAll says that what the borrower has set holds for every session from now on, so
// that it is not to be cleaned away.
func (s *Session) KeepsForAll() { s.effect &^= ChangesSession }

// recordStatement is called before a statement is sent: if it fails half way, what it
// began still counts.
func (s *Session) recordStatement(st *Statement) {
	s.RecordEffect(st.Effect)
	if s.tx != nil && s.traits.PreparedAges && !(LeavesNothing(st.Effect) && dialects.OnlyData(st.Text)) {
		s.schemaGeneration++
	}
}

// RecordEffect records what is about to be done to the session.
func (s *Session) RecordEffect(e dialects.Effect) {
	s.effect |= e
	if e&dialects.ForgetPrepared != 0 && s.traits.PreparedAges {
		s.namesChanged = true
	}
	if e&dialects.TxControl != 0 && e&dialects.Suspect == 0 {
		s.hiddenTx = true
	}
}

// RecordResult is called after a statement has run. After one that changes what names
// mean the prepared statements are not used again. One that may have to do with a
// transaction, and failed, leaves the session uncertain: not every protocol tells the
// transaction's state with an error. driver.ErrSkip is neither: nothing ran.
func (s *Session) RecordResult(e dialects.Effect, err error) {
	if err != nil || !LeavesNothing(e) {
		s.recordResultSlow(e, err)
	}
}

// recordResultSlow is RecordResult where there is something to do, so that RecordResult is
// inlined.
func (s *Session) recordResultSlow(e dialects.Effect, err error) {
	if err == driver.ErrSkip {
		return
	}
	if e&dialects.ForgetPrepared != 0 || s.traits.PreparedKeepsTypes && e&dialects.Stateful != 0 {
		s.stmts.MarkAllStale()
	}
	if e&dialects.TxControl != 0 && s.namesChanged {
		s.namesSettle(err == nil && s.TxStatus() == dialects.TxNone) // a failed driver is not asked
	}
	if err != nil {
		if e&dialects.TxControl != 0 {
			s.health = s.health.after(txCallFailed)
		}
		return
	}
	// The program counts on it from here on, even if the connection is dead before
	// anybody looks at it.
	if e&ChangesSession != 0 {
		s.stateful = true
	}
	if e&dialects.TxControl != 0 && s.tx == nil {
		s.byHand = opened(s.lastTxStatus())
	}
}

// lastTxStatus is TxStatus or, of a connection that is closed, what the server said last.
func (s *Session) lastTxStatus() dialects.TxStatus {
	status := s.TxStatus()
	if last, ok := s.server.(dialects.LastTxStatus); ok && status == dialects.TxLost {
		return last.LastTxStatus()
	}
	return status
}

func opened(status dialects.TxStatus) bool {
	return status == dialects.TxOpen || status == dialects.TxFailed || status == dialects.TxLost
}

// Observe is called at the end of an operation of a task, with what pins the session:
// open says that a transaction is.
func (s *Session) Observe(open bool) {
	if !s.Unusable() {
		s.stateful = s.effect&ChangesSession != 0
		s.byHand = s.tx == nil && open
	}
}

// namesSettle is for the end of a transaction, or of a savepoint, which is not the whole:
// it may undo what has changed the meaning of names. What was prepared since has the types
// of then where a server keeps them.
func (s *Session) namesSettle(whole bool) {
	if s.namesChanged {
		s.stmts.MarkAllStale()
		s.namesChanged = !whole
	}
}

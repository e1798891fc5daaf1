package session

import "github.com/pooldriver/pooldriver/dialects"

// health says whether a session can still be trusted.
type health uint8

const (
	healthy health = iota
	// uncertain: the beginning or the end of a transaction has failed. The driver may
	// not know whether a transaction is open.
	uncertain
	// txGone: the server has ended the transaction by an error, and the program has not
	// ended it yet.
	txGone
	// unusable: the session is never lent again.
	unusable
	resetting
	closed
)

// event is what changes the health.
type event uint8

const (
	txCallFailed event = iota // what begins or ends a transaction
	txEnded                   // by the server
	txForgotten               // the program has ended the transaction, or it is not its any more
	lost                      // the connection, or the trust in it
	resetBegun
	resetDone
	sessionClosed
)

// after is the only function that changes a health.
func (h health) after(e event) health {
	switch {
	case h == closed || e == sessionClosed:
		return closed
	case h == unusable || e == lost:
		return unusable
	}
	switch e {
	case txCallFailed:
		return max(h, uncertain)
	case txEnded:
		return max(h, txGone)
	case txForgotten:
		if h == txGone {
			return uncertain // the driver may still believe in the transaction
		}
	case resetBegun:
		return resetting
	case resetDone:
		return healthy
	}
	return h
}

// State is what can be done with a session.
type State uint8

// The states. A session that is Ready is as it was when it was opened.
const (
	Ready State = iota
	// InTx: a transaction is open.
	InTx
	// FailedTx: a transaction is open and accepts only its end, or the server has
	// ended it by an error.
	FailedTx
	// Dirty: statements have changed the session, or may have.
	Dirty
	// Uncertain: whether a transaction is open is not known.
	Uncertain
	// Unusable: the session is closed when it comes back.
	Unusable
	// Resetting: it is rolled back and cleaned.
	Resetting
	Closed
)

var stateNames = [...]string{"ready", "in a transaction", "in a failed transaction", "dirty", "uncertain", "unusable", "resetting", "closed"}

func (s State) String() string { return stateNames[s] }

// State returns the state of the session.
func (s *Session) State() State {
	return stateOf(s.health, s.TxStatus(), s.Begun() || s.hiddenTx, s.effect)
}

func stateOf(h health, status dialects.TxStatus, begun bool, effect dialects.Effect) State {
	switch h {
	case closed:
		return Closed
	case unusable:
		return Unusable
	case resetting:
		return Resetting
	case txGone:
		return FailedTx
	case uncertain:
		return Uncertain
	}
	switch {
	case status == dialects.TxLost:
		return Unusable
	case status == dialects.TxFailed:
		return FailedTx
	case status == dialects.TxOpen || status == dialects.TxImplicit || begun:
		return InTx
	case effect.Dirty():
		return Dirty
	}
	return Ready
}

// MarkUnusable has the session closed when it comes back.
func (s *Session) MarkUnusable() { s.health = s.health.after(lost) }

// Healthy reports whether nothing is known that speaks against the session.
func (s *Session) Healthy() bool { return s.health == healthy }

// Unusable reports whether the session is never to be lent again.
func (s *Session) Unusable() bool { return s.health >= unusable && s.health != resetting }

// CheckLost marks a session unusable that the driver has closed: a context that ended may
// have closed it while rows were open.
func (s *Session) CheckLost() dialects.TxStatus {
	status := s.TxStatus()
	if status == dialects.TxLost {
		s.MarkUnusable()
	}
	return status
}

// Closed ends the session for good; its server's session is closed by the caller.
func (s *Session) Closed() { s.health = s.health.after(sessionClosed) }

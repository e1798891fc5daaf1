package session

import "github.com/pooldriver/pooldriver/dialects"

// health says whether a session can still be trusted. It is the session's state machine:
// after has all its transitions.
type health uint8

const (
	healthy health = iota
	// uncertain: the beginning or the end of a transaction has failed. The driver may
	// not know whether a transaction is open.
	uncertain
	// txGone: the server has ended the transaction by an error, and the program has not
	// ended it yet. Only a session that is lent is in this state.
	txGone
	// resetting: the session is on the way back to its state at connect.
	resetting
	// unusable: the session is never lent again.
	unusable
)

// event is what changes the health.
type event uint8

const (
	txCallFailed event = iota // what begins or ends a transaction
	txEnded                   // the server has ended the transaction by an error
	txForgotten               // the program has ended the transaction, or has given the session back
	lost                      // the connection is lost, or cannot be trusted
	resetBegun
	resetDone
)

// after returns the health that follows from an event. No other function decides on a health. An
// event that cannot come in a state, such as the end of a reset that has not begun, changes
// nothing.
func (h health) after(e event) health {
	if h == unusable {
		return unusable
	}
	switch e {
	case lost:
		return unusable
	case txCallFailed:
		return max(h, uncertain)
	case txEnded:
		return max(h, txGone)
	case txForgotten:
		if h == txGone {
			return uncertain // for the driver the transaction may still be open
		}
	case resetBegun:
		return resetting
	case resetDone:
		if h == resetting {
			return healthy
		}
	}
	return h
}

// MarkUnusable has the session closed when it comes back.
func (s *Session) MarkUnusable() { s.health = s.health.after(lost) }

// Healthy reports whether no call has failed in a way that makes the session doubtful.
func (s *Session) Healthy() bool { return s.health == healthy }

// Unusable reports whether the session is never to be lent again.
func (s *Session) Unusable() bool { return s.health == unusable }

// CheckLost marks the session unusable if the driver has closed it. A driver may do so when
// a context ends while rows are open.
func (s *Session) CheckLost() dialects.TxStatus {
	status := s.TxStatus()
	if status == dialects.TxLost {
		s.MarkUnusable()
	}
	return status
}

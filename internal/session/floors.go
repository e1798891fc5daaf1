package session

import (
	"context"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/floor"
)

// This file tells contexts how far the server's log is after their writes.

// Owe is called before a statement that may write is sent under ctx. The contexts of the transactions in which it runs wait for
// the same position. of returns the floor of a context; nil: it keeps none.
func (s *Session) Owe(ctx context.Context, of func(context.Context) *floor.Floor) {
	s.debts.Owe(of(ctx))
	for depth := range len(s.inner) + 1 {
		if t := s.at(depth); t != nil {
			s.debts.Owe(of(t.ctx))
		}
	}
}

// OweTo is Owe for the query of a pipeline, which runs in no transaction; nil: its context keeps no floor.
func (s *Session) OweTo(f *floor.Floor) { s.debts.Owe(f) }

// failed records that nobody knows what has become of a statement. In a transaction its end tells.
func (s *Session) failed() {
	if s.debts.Any() && !s.InTx() {
		s.debts.Fail()
	}
}

// settle is called at the end of a statement, of rows and of a loan. It is settleNow, unless the borrower may still ask for what the
// statement has left: then it is left to GiveBack. It is small, so that it is inlined.
func (s *Session) settle() {
	if s.debts.Any() && !s.traits.AnswersOverwrite {
		s.settleNow()
	}
}

// settleNow tells the floors of Owe how far the log is, if no transaction and no rows are open. It asks the server.
func (s *Session) settleNow() {
	if s.debts.Any() && s.reading == 0 && (s.Unusable() || !s.InTx()) {
		s.debts.Settle(s.written)
	}
}

// written asks the server for its log, which has everything that the session has committed.
func (s *Session) written() (log dialects.Log, err error) {
	asked, ok := s.server.(dialects.Positioned)
	if !ok || s.guard != nil || s.Unusable() {
		return log, dialects.ErrNoPosition
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.env.PingTimeout)
	defer cancel()
	s.call()
	log, err = asked.Written(ctx)
	s.returned()
	return log, err
}

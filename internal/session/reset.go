package session

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// How a session is looked at and reset between two borrowers. What is to be done is
// decided by its holder.

// Findings are what is known of a session when a borrower gives it back.
type Findings struct {
	// Unusable: the session has to be closed. The driver was not asked.
	Unusable bool
	// Panicked is what the driver did when it was asked: the session has to be closed.
	Panicked any
	Status   dialects.TxStatus // by the server, where it can be asked
	Effect   dialects.Effect   // of all statements since the last reset
	Valid    bool              // the driver's own opinion; true where it has none
	Doubt    bool              // what begins or ends a transaction has failed
}

// Inspect looks at what a borrower has left. A driver that has panicked is asked nothing
// more: it may hold a lock of its own. One that panics here costs the session, and not the
// program, which has nothing to do with it.
func (s *Session) Inspect() (f Findings) {
	if s.effect&dialects.ForgetPrepared != 0 {
		s.stmts.MarkAllStale() // also what was prepared after that statement
	}
	s.namesChanged = false
	if s.stmts.CloseFailed() && s.traits.PreparedAges {
		// Such as "conn busy". pgx goes on finding the statement by its text, and we do
		// not know of it any more.
		s.effect |= dialects.Suspect | dialects.ForgetPrepared
	}
	if s.Unusable() || s.Severed() || s.running > 0 {
		return Findings{Unusable: true}
	}
	defer func() {
		if p := recover(); p != nil {
			f = Findings{Unusable: true, Panicked: p}
		}
	}()
	return Findings{
		Status: s.TxStatus(),
		Effect: s.effect,
		Valid:  s.conn.Validator == nil || s.conn.Validator.IsValid(),
		Doubt:  s.health == uncertain,
	}
}

// Left reports whether the connection can still be used, after code of the program has had
// it. If not the session is unusable.
func (s *Session) Left() (usable bool) {
	if s.TxStatus() == dialects.TxLost || s.conn.Validator != nil && !s.conn.Validator.IsValid() {
		s.MarkUnusable()
		return false
	}
	return true
}

// BeginReset and EndReset bracket the way back to the state at connect. Without an EndReset
// the session is to be closed.
func (s *Session) BeginReset() { s.health = s.health.after(resetBegun) }

// EndReset says that nothing of the last borrower is left.
func (s *Session) EndReset() {
	s.effect = dialects.Clean
	s.health = s.health.after(resetDone)
}

// Rollback ends the transaction that is open, or may be. open tells that one was; done
// that none is, which has to be certain.
func (s *Session) Rollback(ctx context.Context) (open, done bool) {
	switch s.server.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		open = true
	}
	err := s.server.Rollback(ctx)
	return open, err == nil && s.server.TxStatus() == dialects.TxNone
}

// Undo closes the rows and rolls back the transaction of a borrower whose time has ended.
// open tells that a transaction was open. A driver that panics costs the session.
func (s *Session) Undo(why error) (open bool, panicked any) {
	defer func() {
		if panicked = recover(); panicked != nil {
			s.MarkUnusable()
		}
	}()
	if rows := s.rows.Load(); rows != nil {
		rows.Abandon(why)
	}
	if t := s.tx; t != nil && t.hasBegun() && !s.TxLost() {
		open = true
		_ = t.rollbackReal()
	}
	return open, nil
}

var errTooManyForgotten = errors.New("too many of its statements were forgotten")

// maxForgotten is the number of forgotten statements after which a session is replaced:
// see stmtcache.Cache.Forgotten. To close each instead would cost a round trip.
const maxForgotten = 10_000

// Clean brings the session back to its state at connect, but for what the program's
// AfterConnect has set. always has it cleaned also of what no text shows. The error is
// dialects.ErrCannotClean where only a new connection is clean.
func (s *Session) Clean(ctx context.Context, always bool) error {
	effect := s.effect
	if always {
		effect |= dialects.Suspect
	}
	kept, err := s.server.Clean(ctx, effect)
	if err != nil {
		return err
	}
	if !kept {
		s.stmts.Forget()
	}
	if s.stmts.Forgotten() > maxForgotten {
		return errors.Join(errTooManyForgotten, dialects.ErrCannotClean)
	}
	return nil
}

// RoleDoubt reports whether the server has refused what only a primary does.
func (s *Session) RoleDoubt() bool { return s.roleDoubt }

// EndRoleDoubt says that the server was asked.
func (s *Session) EndRoleDoubt() { s.roleDoubt = false }

// CheckRole asks the server whether it is what the DSN asks for.
func (s *Session) CheckRole(ctx context.Context) error {
	if c, ok := s.server.(dialects.RoleChecker); ok {
		return c.CheckRole(ctx)
	}
	return nil
}

// ErrFoundDead is why a session that died while it was idle is not lent.
var ErrFoundDead = errors.New("pooldriver: the server has closed the connection")

// CheckIdle is called before an idle session is lent: a dead one is found here, not by the
// borrower's statement. dead tells that the server had ended it.
func (s *Session) CheckIdle(ctx context.Context) (dead bool, err error) {
	switch s.server.Peek() {
	case dialects.Dead:
		return true, ErrFoundDead
	case dialects.Unsure:
		if err := s.PingServer(ctx); err != nil {
			return true, err
		}
	}
	if s.conn.Resetter != nil {
		if err := s.conn.Resetter.ResetSession(ctx); errors.Is(err, driver.ErrBadConn) {
			return false, err
		}
	}
	return false, nil
}

// PingServer asks the server for a sign of life, for PingTimeout at the most.
func (s *Session) PingServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.env.PingTimeout)
	defer cancel()
	return s.server.Ping(ctx)
}

// askTxStatus has the server tell the state of the transaction anew, and reports whether it
// has.
func (s *Session) askTxStatus() (answered bool) {
	s.running++
	err := s.PingServer(context.Background())
	s.running--
	if err != nil {
		s.MarkUnusable()
	}
	return err == nil
}

// EndsTx reports whether an error was the end of the transaction: a deadlock on MySQL, a
// full disk on SQLite. What follows would run outside of it.
func (s *Session) EndsTx(said dialects.Diagnosis, effect dialects.Effect) bool {
	if said&dialects.TxEnded != 0 && (!s.traits.WritesAlone || effect&dialects.Writes != 0) {
		return true
	}
	if said&dialects.TxDoubt != 0 && !s.askTxStatus() {
		return true
	}
	return s.server.TxStatus() == dialects.TxNone
}

// CloseStatements closes what is prepared, where that does not end with the session.
func (s *Session) CloseStatements() {
	if !s.traits.StatementsEndWithSession {
		s.stmts.CloseAll()
	}
}

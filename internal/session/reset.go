package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// A session is inspected and reset between two borrowers. The holder decides which steps are
// needed.

// Findings are what is known of a session when a borrower gives it back.
type Findings struct {
	// Unusable: the session has to be closed. The other fields, except Panicked, are zero.
	Unusable bool
	// Panicked is the value with which the driver has panicked during the inspection.
	Panicked any
	Status   dialects.TxStatus // unknown where the server does not tell
	Effect   dialects.Effect   // of all statements since the last reset
	Valid    bool              // what driver.Validator says; true if the driver has none
	Doubt    bool              // a call that begins or ends a transaction has failed
}

// Inspect finds what a borrower has left, after GiveBack. A driver that has panicked before
// is not called, because it may hold a lock of its own. If the driver panics in Inspect, the
// session is lost, and the panic goes no further: the program's present call has nothing to
// do with it.
func (s *Session) Inspect() (f Findings) {
	if s.effect&meansAnew != 0 {
		s.stmts.MarkAllStale() // also statements that were prepared after the change
	}
	s.namesChanged = false
	if s.stmts.CloseFailed() && s.traits.PreparedAges {
		// The driver may have refused because rows were open. pgx then still finds the
		// statement by its text, although the cache does not know it any more.
		s.effect |= dialects.Suspect | dialects.ForgetPrepared
	}
	if s.Unusable() || s.Severed() || s.running > 0 {
		return Findings{Unusable: true, Panicked: s.panicked}
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

// LeftNothing reports, after GiveBack, whether the borrower has left nothing but data: the session is
// in its state at connect. false: Inspect has to look closer. Most borrowers leave nothing but
// data, and LeftNothing is quick.
func (s *Session) LeftNothing() (nothing bool) {
	if s.health != healthy || s.running > 0 || s.namesChanged || s.roleDoubt || !LeavesNothing(s.effect) || s.Severed() || s.stmts.CloseFailed() {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			s.MarkUnusable()
			s.panicked = p // for Inspect
		}
	}()
	switch s.TxStatus() {
	case dialects.TxNone, dialects.TxUnknown:
		if s.conn.Validator == nil || s.conn.Validator.IsValid() {
			s.effect = dialects.Clean
			return true
		}
		s.MarkUnusable() // the driver is asked once: Inspect would believe another answer
	}
	return false
}

// Left reports whether the session can still be used after code of the program has used the
// driver's connection. If it cannot, the session is unusable.
func (s *Session) Left() (usable bool) {
	if s.TxStatus() == dialects.TxLost || s.conn.Validator != nil && !s.conn.Validator.IsValid() {
		s.MarkUnusable()
		return false
	}
	return true
}

// BeginReset begins the way back to the state at connect. EndReset ends it. If a step between
// them fails, the caller closes the session.
func (s *Session) BeginReset() { s.health = s.health.after(resetBegun) }

// EndReset records that the session is in its state at connect. No reset needs to have begun
// if the session was healthy and its statements have left nothing.
func (s *Session) EndReset() {
	s.effect = dialects.Clean
	s.health = s.health.after(resetDone)
}

// Rollback ends a transaction that is open or may be open. open reports whether one was known
// to be open. done reports whether certainly none is open now.
func (s *Session) Rollback(ctx context.Context) (open, done bool) {
	switch s.status() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		open = true
	}
	err := s.rollBack(ctx)
	return open, err == nil && s.status() == dialects.TxNone
}

// Undo closes the rows and rolls back the transaction of a task that has ended. open reports
// whether a transaction was open. If the driver panics, the session is unusable.
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

// maxForgotten is the number of forgotten statements (stmtcache.Cache.Forgotten) after which a
// session is replaced. Closing each of them would cost a round trip.
const maxForgotten = 10_000

// Clean brings the session back to its state at connect, before the program's AfterConnect.
// If always is true, it also removes state that no statement's text has shown. The error is
// dialects.ErrCannotClean if only a new connection is clean.
func (s *Session) Clean(ctx context.Context, always bool) error {
	effect := s.effect
	if always {
		effect |= dialects.Suspect
	}
	var kept bool
	var err error
	if s.guard != nil {
		err = s.guard.Clean(effect)
	} else {
		kept, err = s.server.Clean(ctx, effect)
	}
	if err != nil {
		return err
	}
	s.settings = settings{}
	if !kept {
		s.stmts.Forget()
	}
	if s.stmts.Forgotten() > maxForgotten {
		return errors.Join(errTooManyForgotten, dialects.ErrCannotClean)
	}
	return nil
}

// RoleDoubt reports whether the server has refused to write since the last EndRoleDoubt. It
// may not be a primary any more.
func (s *Session) RoleDoubt() bool { return s.roleDoubt }

// EndRoleDoubt records that CheckRole was called.
func (s *Session) EndRoleDoubt() { s.roleDoubt = false }

// CheckRole asks the server whether it is what the DSN asks for.
func (s *Session) CheckRole(ctx context.Context) error {
	if c, ok := s.server.(dialects.RoleChecker); ok && s.guard == nil {
		return c.CheckRole(ctx)
	}
	return nil
}

// ErrFoundDead is the error of CheckIdle if the server has ended the session.
var ErrFoundDead = errors.New("pooldriver: the server has closed the connection")

// SilentError is the error of CheckIdle if the server has not answered in time.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("pooldriver: the server has not answered for %v on a connection that was idle", e.For.Round(time.Millisecond))
}

// CheckIdle is called before an idle session is lent, so that no statement of the borrower
// fails on a dead session. It waits IdleTimeout at most. Its error is nil if the session can be
// lent. If ctx has not ended, an error means that the session is dead.
func (s *Session) CheckIdle(ctx context.Context) error {
	if s.guard != nil {
		if s.status() == dialects.TxLost {
			return ErrFoundDead
		}
		return nil
	}
	switch s.server.Peek() {
	case dialects.Dead:
		return ErrFoundDead
	case dialects.Unsure:
		begun := time.Now()
		bounded, cancel := context.WithTimeout(ctx, s.env.IdleTimeout)
		defer cancel()
		if err := s.server.Ping(bounded); err != nil {
			if bounded.Err() != nil {
				return &SilentError{time.Since(begun)}
			}
			return err
		}
	}
	return s.resetByDriver(ctx)
}

// resetByDriver has the driver prepare the session for a borrower whose values ctx has. It waits
// IdleTimeout at most. Only two errors count: the driver's driver.ErrBadConn, as for
// database/sql, and the end of the wait.
func (s *Session) resetByDriver(ctx context.Context) error {
	if s.conn.Resetter == nil {
		return nil
	}
	bounded := s.resetContext
	if bounded == nil {
		bounded = &lazyTimeout{d: s.env.IdleTimeout}
		s.resetContext = bounded
	}
	bounded.Context = ctx
	err := s.conn.Resetter.ResetSession(bounded)
	if err == nil && !bounded.asked.Load() {
		bounded.Context = context.Background()
		return nil
	}
	return s.resetEnded(ctx, bounded, err)
}

// resetEnded follows a ResetSession that has failed, or has asked for the end of its context.
func (s *Session) resetEnded(ctx context.Context, bounded *lazyTimeout, err error) error {
	ended := bounded.Err() // asked now, if it was not
	bounded.end()
	s.resetContext = nil // it has ended, and keeps ctx
	switch {
	case err == nil:
	case ended != nil && ctx.Err() == nil:
		return &SilentError{s.env.IdleTimeout}
	case errors.Is(err, driver.ErrBadConn):
		return err
	}
	return nil
}

// TakesValues reports, under the lock, whether a statement with other values in its context is
// to call Share: a driver may set a tenant by the context in its ResetSession. In a
// transaction the transaction's values stay.
func (s *Session) TakesValues() bool { return s.conn.Resetter != nil && !s.InTx() }

// Share has the driver prepare the session for a statement, while other checkouts of the
// statement's task use the session, too.
func (s *Session) Share(ctx context.Context) error {
	s.running++
	err := s.resetByDriver(ctx)
	s.running--
	if err != nil {
		s.MarkUnusable()
	}
	return err
}

// PingServer asks the server for a sign of life, and waits PingTimeout at most.
func (s *Session) PingServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.env.PingTimeout)
	defer cancel()
	if s.guard != nil {
		return s.pingUnder(ctx, s.server.Ping)
	}
	return s.server.Ping(ctx)
}

// askTxStatus pings, because the answer contains the transaction's state, and reports whether
// the server has answered.
func (s *Session) askTxStatus() (answered bool) {
	s.running++
	err := s.PingServer(context.Background())
	s.running--
	if err != nil {
		s.MarkUnusable()
	}
	return err == nil
}

// EndsTx reports whether the server has ended the transaction with an error: a deadlock on
// MySQL, a full disk on SQLite. Later statements would run outside of the transaction.
func (s *Session) EndsTx(said dialects.Diagnosis, effect dialects.Effect) bool {
	if said&dialects.TxEnded != 0 && (!s.traits.WritesAlone || effect&dialects.Writes != 0) {
		return true
	}
	if said&dialects.TxDoubt != 0 && !s.askTxStatus() {
		return true
	}
	return s.status() == dialects.TxNone
}

// CloseStatements closes the kept statements, unless they end with the session.
func (s *Session) CloseStatements() {
	s.stmts.DisownAll()
	if s.guard != nil {
		s.stmts.CloseAll()
		s.guard.End()
		return
	}
	if !s.traits.StatementsEndWithSession {
		s.stmts.CloseAll()
	}
}

package session

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
)

// Guards is a template whose sessions are all one session of the server, in one transaction, which never commits: that
// of a test (package sandbox).
type Guards interface {
	// Adapt returns what holds here of the driver's traits.
	Adapt(t dialects.Traits) dialects.Traits
	// Guard begins another session of the Connector.
	Guard() Guard
}

// A Guard stands between a Session and the server. The transactions of the Session are savepoints, and no context
// reaches the driver that would end the connection.
type Guard interface {
	// TxStatus is that of the Session's transaction.
	TxStatus() dialects.TxStatus
	Begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error)
	Rollback() error
	// Clean brings the session back to its state at connect, as far as that goes in a transaction.
	Clean(effect dialects.Effect) error

	// Controls reports whether a text begins or ends the Session's transaction, so that it is never prepared.
	Controls(text string) (bool, error)
	// Execute executes st by send, or does itself what st asks for. Rows of st end by st.Under.
	Execute(ctx context.Context, st *Statement, send func(context.Context) error) error
	Prepare(ctx context.Context, text string, prepare func(context.Context) error) error
	// Call is for what is no statement of the program: a text, or something else.
	Call(ctx context.Context, text string, call func(context.Context) error) error
	// SetSettings puts settings of a context in force.
	SetSettings(ctx context.Context, settings []dialects.ContextSetting) error

	// Lend is called before a function of Raw, and Returned after it, unless it has failed. A loan of several functions ends
	// with EndLoan.
	Lend()
	Returned() error
	EndLoan()
	// Interrupt stops the statement that runs. It needs no lock.
	Interrupt()
	// CloseStmt closes a prepared statement of the Session, unless the connection is another one's by now.
	CloseStmt(si driver.Stmt) error
	// End ends the Session: what it has open is undone.
	End()
}

// Under are rows under a Guard.
type Under interface {
	Read(read func() error) error
	Close(how func() error) error
}

// status is what the server has said last of the transaction.
func (s *Session) status() dialects.TxStatus {
	if s.guard != nil {
		return s.guard.TxStatus()
	}
	return s.server.TxStatus()
}

// rollBack rolls back by a command, whatever the driver knows.
func (s *Session) rollBack(ctx context.Context) error {
	if s.guard != nil {
		return s.guard.Rollback()
	}
	return s.server.Rollback(ctx)
}

// pingUnder pings. Where the transaction has failed, the server has answered, and some drivers ping by a statement.
func (s *Session) pingUnder(ctx context.Context, how func(context.Context) error) error {
	if s.status() == dialects.TxFailed {
		return nil
	}
	return s.guard.Call(ctx, "", how)
}

// severer returns what cuts the connection, or stops its statement; nil: nothing does.
func (s *Session) severer() func() {
	if s.guard != nil {
		return s.guard.Interrupt
	}
	if c, ok := s.server.(dialects.Severable); ok {
		return c.Sever
	}
	return nil
}

// prepareText has the driver prepare a text.
func (s *Session) prepareText(ctx context.Context, text string) (si driver.Stmt, err error) {
	if s.guard == nil {
		return s.conn.Prepare(ctx, text)
	}
	prepared := false
	err = s.guard.Prepare(ctx, text, func(ctx context.Context) (err error) {
		si, err = s.conn.Prepare(ctx, text)
		prepared = err == nil
		return err
	})
	if err != nil && prepared {
		_ = s.guard.CloseStmt(si)
	}
	return si, err
}

// controls reports whether the Guard itself does what a text asks for.
func (s *Session) controls(text string) (bool, error) {
	if s.guard == nil {
		return false, nil
	}
	return s.guard.Controls(text)
}

// execute sends st under the Guard.
func (s *Session) execute(ctx context.Context, st *Statement) error {
	return s.guard.Execute(ctx, st, func(ctx context.Context) error { return s.toDriver(ctx, st) })
}

// readUnder reads from the driver's rows under the Guard.
func (r *Rows) readUnder(read func() error) error {
	if r.under != nil {
		return r.under.Read(read)
	}
	return read()
}

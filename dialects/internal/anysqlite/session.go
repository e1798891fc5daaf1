package anysqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
)

// Session is one connection to a database in this process. base.Session does most of it: there is
// no network to look at.
type Session struct {
	*base.Session
	// Lent is the connection that Raw lends; nil: the one of the driver.
	Lent driver.Conn

	traits   dialects.Traits
	question driver.Stmt // the statement for TxStatus, prepared when first needed
	private  bool        // the database is in memory, and only this connection sees it
	file     string      // the database's file, for takeTurn; empty: the database is in memory, or not known
}

var (
	_ dialects.Session       = (*Session)(nil)
	_ dialects.ConnTraits    = (*Session)(nil)
	_ dialects.Irreplaceable = (*Session)(nil)
	_ dialects.TxAsker       = (*Session)(nil)
)

// NewSession makes a session of conn, which prints as label.
func NewSession(conn driver.Conn, label string, traits dialects.Traits) *Session {
	return &Session{Session: base.NewSession(conn, label), traits: traits}
}

// OpenFile makes a session for a file with this path, which open opens.
func OpenFile(ctx context.Context, path string, open func() (driver.Conn, error), label string, traits dialects.Traits) (dialects.Session, error) {
	file := realPath(path)
	done, err := takeTurn(ctx, file)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := open()
	if err != nil {
		return nil, err
	}
	join(ctx, conn, file)
	s := NewSession(conn, label, traits)
	s.file = file
	return s, nil
}

// Traits of this connection.
func (s *Session) Traits() dialects.Traits { return s.traits }

// Unwrap is what Raw lends.
func (s *Session) Unwrap() driver.Conn {
	if s.Lent != nil {
		return s.Lent
	}
	return s.Session.Unwrap()
}

// Irreplaceable is true of a database in memory that no other connection sees.
func (s *Session) Irreplaceable() bool { return s.private }

// Rollback executes ROLLBACK. SQLite returns an error if no transaction is open. A full disk or an
// interruption may also have rolled back the transaction, and SQLite tells nobody.
func (s *Session) Rollback(ctx context.Context) error {
	err := s.Exec(ctx, "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// Clean does nothing if nothing was left behind: neither a trigger nor a function can change the
// session. SQLite cannot undo the rest (temporary tables, attached databases, pragmas), and a new
// connection costs less than a search for them.
func (s *Session) Clean(_ context.Context, effect dialects.Effect) (bool, error) {
	if effect.Dirty() {
		return false, dialects.ErrCannotClean
	}
	return true, nil
}

// CheckSettings accepts no setting: in SQLite only a table could hold a setting that a statement
// can read.
func (s *Session) CheckSettings([]dialects.ContextSetting) error {
	return errors.New("SQLite has no settings that a statement could read: give the value to the statement as an argument")
}

// Close closes the connection. SQLite keeps the file open until the prepared statements of the
// connection are closed, too.
func (s *Session) Close(ctx context.Context) error {
	if s.file != "" {
		done, err := takeTurn(ctx, s.file)
		if err != nil {
			done = func() {} // a close out of turn is better than no close
		}
		defer done()
	}
	var err error
	if s.question != nil {
		// Also after an interruption: while a statement is left, SQLite keeps the connection open,
		// with the transaction and its locks.
		err = s.question.Close()
	}
	s.question = nil
	if s.file != "" {
		// An interruption lasts until the next statement, and would end the copying of the
		// write-ahead log (walCheckpoint looks at isInterrupted).
		_, _ = firstRow(ctx, s.Conn(), "SELECT 1")
	}
	return errors.Join(err, s.Session.Close(ctx))
}

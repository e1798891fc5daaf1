//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pause"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// session is one connection, with what its database has said.
type session struct {
	redact.Label
	conn     *conn
	how      dialer
	database database
	version  string

	number       int64    // the server's number of the connection
	mark         string   // distinguishes it from another connection with its number
	home         []string // PostgreSQL: statements that bring the settings of the ODBC driver back
	noAutocommit bool     // MySQL: autocommit was off at connect
}

var (
	_ dialects.ConnTraits      = (*session)(nil)
	_ dialects.SettingsChecker = (*session)(nil)
	_ dialects.Unwrapper       = (*session)(nil)
)

func newSession(c *conn, how dialer) *session {
	return &session{Label: how.template.Label, conn: c, how: how, database: unknown{}}
}

func (s *session) Conn() driver.Conn { return s.conn }

func (s *session) Unwrap() driver.Conn { return s.conn.bare }

// CheckSettings accepts no setting: ODBC does not tell which of a statement's settings have reached
// the server.
func (s *session) CheckSettings([]dialects.ContextSetting) error {
	return errors.New("over ODBC it is not known which settings are in force: give the value to the statement as an argument, or use dialects/postgres or dialects/mysql")
}

func (s *session) Traits() dialects.Traits { return s.database.traits(s.how.template.Traits()) }

// askTimeout bounds a question whose asker gives no context.
const askTimeout = 5 * time.Second

// TxStatus asks the database: through ODBC, answers do not contain the status. A transaction of the
// driver, with autocommit off, is open until its end, whatever a text in it has done: the next
// statement is in a transaction.
func (s *session) TxStatus() dialects.TxStatus {
	switch {
	case s.conn.usable() != nil:
		return dialects.TxLost
	case s.conn.tx != nil && s.database.remote():
		return s.conn.tx.status()
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	return s.database.status(ctx, s)
}

// peekAfter is how long a connection that has just answered counts as alive. The ODBC driver has
// the socket, so a look takes a round trip.
const peekAfter = 10 * time.Millisecond

func (s *session) Peek() dialects.Liveness {
	switch {
	case s.conn.usable() != nil:
		return dialects.Dead
	case s.database.remote() && time.Since(s.conn.heard) > peekAfter:
		return dialects.Unsure
	}
	return dialects.Alive
}

// Ping is a query. An unknown database may not know it.
func (s *session) Ping(ctx context.Context) error {
	if !s.database.remote() {
		return errors.Join(ctx.Err(), s.conn.usable())
	}
	_, err := s.conn.ask(ctx, "SELECT 1")
	return err
}

// Sent counts executions, not bytes: without an execution nothing was executed.
func (s *session) Sent() (uint64, bool) { return s.conn.executions, true }

// Rollback ends the driver's transaction, or a transaction that a text has begun.
func (s *session) Rollback(ctx context.Context) error {
	if err := s.conn.usable(); err != nil {
		return err
	}
	if t := s.conn.tx; t != nil {
		return t.end(func() error { return t.rollback(ctx) })
	}
	return s.database.rollback(ctx, s)
}

func (s *session) Clean(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	if err := s.conn.usable(); err != nil {
		return false, err
	}
	if s.conn.tx != nil {
		return false, errors.New("the session cannot be cleaned with a transaction that is open")
	}
	return s.database.clean(ctx, s, effect)
}

// killAfter is how long Close waits for a statement that was given up, before it tells the server
// to end the connection.
const killAfter = 5 * time.Millisecond

// disconnectPause is a pause after the disconnect: the ODBC driver does not wait for the server, which
// removes the connection from its list some 0.1 ms later.
const disconnectPause = 2 * time.Millisecond

// Close waits for a call that was given up, and may tell the server to end its connection. Then it
// disconnects. What takes longer than ctx goes on in the background.
func (s *session) Close(ctx context.Context) error {
	c := s.conn
	if c.closed {
		return nil
	}
	c.closed = true
	var killErr error
	if c.pending != nil && !returnsWithin(ctx, c.pending, killAfter) {
		killErr = s.kill(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- c.end() }()
	select {
	case err := <-done:
		if s.database.remote() {
			pause.For(ctx, disconnectPause)
		}
		if c.lost != nil {
			return nil // the connection was gone before: the error of the disconnect does not matter
		}
		return err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("a statement whose context has ended does not: %w", ctx.Err()), killErr)
	}
}

// kill ends the session's connection over another, short connection.
func (s *session) kill(ctx context.Context) error {
	sure, query, inDatabase := s.database.kill(s)
	if query == "" || s.number == 0 {
		return nil
	}
	bare, err := s.how.killer(inDatabase).dialNow(ctx, s.database, s.how.template.ask)
	if err != nil {
		return fmt.Errorf("connecting to end it: %w", err)
	}
	killer := newConn(bare)
	err = killer.executeIf(ctx, sure, query)
	if ctx.Err() != nil {
		go killer.Close() // waits for the call that was given up
		return err
	}
	return errors.Join(err, killer.Close())
}

// executeIf executes query if sure is empty or has a row.
func (c *conn) executeIf(ctx context.Context, sure, query string) error {
	if sure != "" {
		if answer, err := c.ask(ctx, sure); err != nil || len(answer) == 0 {
			return err
		}
	}
	return c.execute(ctx, query)
}

// askOne asks for one value.
func (s *session) askOne(ctx context.Context, query string) (string, error) {
	row, err := s.askRow(ctx, query, 1)
	if err != nil {
		return "", err
	}
	return row[0], nil
}

var errAnswer = errors.New("the database's answer is incomplete")

// askRow asks for one row.
func (s *session) askRow(ctx context.Context, query string, columns int) ([]string, error) {
	answer, err := s.conn.ask(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case len(answer) != 1 || len(answer[0]) != columns:
		return nil, errAnswer
	}
	return answer[0], nil
}

// returnsWithin waits until a call has returned, or for d.
func returnsWithin(ctx context.Context, call <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-call:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

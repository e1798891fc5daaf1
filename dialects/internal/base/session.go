package base

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// Session is a connection of an unknown driver.
type Session struct {
	redact.Label
	driver driverconn.Conn
	// pending is closed when the latest call without a context has returned. Its caller
	// may have gone before that.
	pending chan struct{}
}

// NewSession makes a session of conn, which prints as label.
func NewSession(conn driver.Conn, label string) *Session {
	return &Session{Label: redact.Label(label), driver: driverconn.New(conn)}
}

// Conn is the driver's connection, or the connection of a wrapper around the driver.
func (s *Session) Conn() driver.Conn { return s.driver.Driver }

// Unwrap is the driver's own connection, if a wrapper shows it.
func (s *Session) Unwrap() driver.Conn { return unwrap.Conn(s.Conn()) }

// Valid asks the driver's Validator, if it has one.
func (s *Session) Valid() bool { return s.driver.Validator == nil || s.driver.Validator.IsValid() }

// TxStatus is unknown, unless the driver has given the connection up.
func (s *Session) TxStatus() dialects.TxStatus {
	if !s.Valid() {
		return dialects.TxLost
	}
	return dialects.TxUnknown
}

// Peek asks the Validator: nothing else can be seen.
func (s *Session) Peek() dialects.Liveness {
	if !s.Valid() {
		return dialects.Dead
	}
	return dialects.Alive
}

// Ping asks the driver to ping. A driver that cannot ping counts as alive.
func (s *Session) Ping(ctx context.Context) error {
	if p, ok := s.Conn().(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return ctx.Err()
}

// Sent is not known.
func (s *Session) Sent() (uint64, bool) { return 0, false }

// Rollback executes ROLLBACK. In some databases that is an error if no transaction is
// open. The session is then given up.
func (s *Session) Rollback(ctx context.Context) error { return s.Exec(ctx, "ROLLBACK") }

// Clean is not possible: nobody knows what the state of a session contains.
func (s *Session) Clean(context.Context, dialects.Effect) (bool, error) {
	return false, dialects.ErrCannotClean
}

var _ dialects.SettingsChecker = (*Session)(nil)

// CheckSettings accepts no setting: nobody knows what a setting is here, and how to set it back.
func (s *Session) CheckSettings([]dialects.ContextSetting) error {
	return errors.New("it is not known how this driver's database sets a session's settings, and sets them back: give the value to the statement as an argument")
}

// Close closes the connection. A driver's Close takes no context. If ctx ends first, the
// driver's Close goes on in the background.
func (s *Session) Close(ctx context.Context) error {
	return s.within(ctx, "close", s.Conn().Close)
}

// Exec executes a statement without arguments, as database/sql does.
func (s *Session) Exec(ctx context.Context, query string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := s.Conn().(driver.ExecerContext); ok {
		return s.driver.Command(ctx, query)
	}
	return s.within(ctx, query, func() error {
		return s.driver.Command(context.WithoutCancel(ctx), query)
	})
}

// within runs f, which takes no context, and waits for f or for ctx. If ctx ends first, f
// keeps the connection: the next call waits for f, so the driver never sees two calls at
// once.
func (s *Session) within(ctx context.Context, what string, f func() error) error {
	before, done := s.pending, make(chan struct{})
	s.pending = done
	result := make(chan error, 1) // buffered: the caller may have gone
	go func() {
		defer close(done)
		defer func() {
			// In this goroutine a driver's panic would end the program.
			if p := recover(); p != nil {
				result <- fmt.Errorf("%s: the driver panicked: %v", what, p)
			}
		}()
		if before != nil {
			<-before
		}
		result <- f()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: the driver did not return in time: %w", what, ctx.Err())
	}
}

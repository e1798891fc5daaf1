package plain

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// Session is a connection of a driver of which nothing is known.
type Session struct {
	redact.Label
	conn driver.Conn
	// pending is closed when the latest call that knows no context, and may
	// have been left behind by one that ended, has returned.
	pending chan struct{}
}

// NewSession makes a session of conn; label is what it prints as.
func NewSession(conn driver.Conn, label string) *Session {
	return &Session{Label: redact.Label(label), conn: conn}
}

// Conn is the driver's connection.
func (s *Session) Conn() driver.Conn { return s.conn }

// Valid asks the driver's Validator, if it has one.
func (s *Session) Valid() bool {
	v, ok := s.conn.(driver.Validator)
	return !ok || v.IsValid()
}

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

// Ping pings where the driver can; else nothing speaks against the connection.
func (s *Session) Ping(ctx context.Context) error {
	if p, ok := s.conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return ctx.Err()
}

// Sent is not known.
func (s *Session) Sent() (uint64, bool) { return 0, false }

// Rollback executes ROLLBACK. Databases differ in whether that is an error
// with no transaction open; the session is given up then.
func (s *Session) Rollback(ctx context.Context) error { return s.Exec(ctx, "ROLLBACK") }

// Clean is not possible: what a session's state is made of is not known.
func (s *Session) Clean(context.Context, dialects.Effect) (bool, error) {
	return false, dialects.ErrCannotClean
}

// Close closes the connection. A driver's Close takes no context: when ctx
// ends first it goes on by itself.
func (s *Session) Close(ctx context.Context) error {
	return s.within(ctx, "close", s.conn.Close)
}

// Exec executes a statement without arguments by whichever way the driver
// offers, in the order in which database/sql tries them.
func (s *Session) Exec(ctx context.Context, query string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c, ok := s.conn.(driver.ExecerContext); ok {
		if _, err := c.ExecContext(ctx, query, nil); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	} else if c, ok := s.conn.(execer); ok {
		err := s.within(ctx, query, func() error {
			_, err := c.Exec(query, nil)
			return err
		})
		if !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	return s.prepareAndExec(ctx, query)
}

func (s *Session) prepareAndExec(ctx context.Context, query string) error {
	var stmt driver.Stmt
	prepare := func() (err error) {
		stmt, err = s.conn.Prepare(query)
		return err
	}
	var err error
	if c, ok := s.conn.(driver.ConnPrepareContext); ok {
		stmt, err = c.PrepareContext(ctx, query)
	} else {
		err = s.within(ctx, query, prepare)
	}
	if err != nil {
		return err
	}
	if c, ok := stmt.(driver.StmtExecContext); ok {
		_, err = c.ExecContext(ctx, nil)
		return errors.Join(err, stmt.Close())
	}
	return s.within(ctx, query, func() error {
		_, err := stmt.(stmtExecer).Exec(nil)
		return errors.Join(err, stmt.Close())
	})
}

// The methods that older drivers have. The interfaces of database/sql/driver
// that hold them are deprecated; drivers that have nothing else are not gone.
type (
	execer interface {
		Exec(query string, args []driver.Value) (driver.Result, error)
	}
	stmtExecer interface {
		Exec(args []driver.Value) (driver.Result, error)
	}
)

// within runs f, which knows no context, and waits for it or for ctx. One that
// is left behind keeps the connection to itself: the next waits for it first,
// so the driver never sees two calls at once.
func (s *Session) within(ctx context.Context, what string, f func() error) error {
	before, done := s.pending, make(chan struct{})
	s.pending = done
	result := make(chan error, 1) // room for one: nobody may be waiting
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

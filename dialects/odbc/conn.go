//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"
)

// conn wraps the driver's connection. Unlike the driver it knows contexts, and it remembers what
// the driver forgets. One goroutine at a time uses it; a call that was given up when its context
// ended may go on in the driver meanwhile.
type conn struct {
	bare     driver.Conn
	database database // unknown{} until it was asked
	strict   bool     // the ODBC driver may give no data of a column in front of a bound column

	lost   error // not nil: why the connection must not be used again
	closed bool
	tx     *tx       // the driver's, until it is ended
	mode   errorMode // what psqlODBC does after an error; PostgreSQL alone
	// executions counts what was handed to the driver to be executed.
	executions uint64
	heard      time.Time
	stmts      map[*stmt]struct{} // not closed
	rows       map[*rows]struct{} // not closed

	pending chan struct{} // closed when a call that was given up has returned; nil: there is none
	late    func()        // closes what that call has opened
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

func newConn(bare driver.Conn) *conn {
	return &conn{bare: bare, database: unknown{}, heard: time.Now(), stmts: make(map[*stmt]struct{}), rows: make(map[*rows]struct{})}
}

// IsValid reports whether the connection is not lost. IsValid and ResetSession together say that a
// connection survives a transaction whose context has ended.
func (c *conn) IsValid() bool { return c.usable() == nil }

// ResetSession has nothing to reset.
func (c *conn) ResetSession(context.Context) error { return c.usable() }

// usable is nil, or why the driver must not be called.
func (c *conn) usable() error {
	if c.closed {
		return errClosed
	}
	return c.lost
}

// lose marks the connection as gone and returns the error that says so.
func (c *conn) lose(what string, cause error) error {
	err := &lostError{what: what, cause: cause}
	if c.lost == nil {
		c.lost = err
	}
	return err
}

// checkError looks at the outcome of a call. Not every ODBC driver says whether an error means that the
// connection is gone. If an error may mean this, checkError tries the connection.
func (c *conn) checkError(err error) error {
	switch {
	case err == nil:
		c.heard = time.Now()
		return nil
	case errors.Is(err, driver.ErrBadConn):
		return c.lose("the ODBC driver has lost the connection", err)
	case hasState(err, "08003", "08007", "57P01", "57P02", "57P03"):
		return c.lose("the connection is lost", err)
	case c.database.remote() && doubtful(err) && !c.answers():
		return c.lose("the connection is lost", err)
	}
	return err
}

// answers tries the connection. psqlODBC remembers a lost connection, and then refuses to prepare.
func (c *conn) answers() bool {
	si, err := c.bare.Prepare("SELECT 1")
	if err == nil {
		var rows driver.Rows
		if rows, err = si.Query(nil); err == nil { //nolint:staticcheck // the driver has nothing newer
			_ = rows.Close()
		}
		_ = si.Close()
	}
	return err == nil || !errors.Is(err, driver.ErrBadConn) && !doubtful(err)
}

// call calls the driver, which knows no context, and waits for it no longer than
// ctx. A call that is given up goes on in the background, and the connection is lost. SQLCancel
// does not stop such a call: see doc.go.
func call[T any](ctx context.Context, c *conn, f func() (T, error)) (T, error) {
	var none T
	if err := c.usable(); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		v, err := f()
		return v, c.checkError(err)
	}
	type outcome struct {
		v        T
		err      error
		panicked any
	}
	done, returned := make(chan outcome, 1), make(chan struct{})
	go func() {
		defer close(returned)
		var o outcome
		defer func() {
			// In this goroutine a panic would end the program. The caller's goroutine can recover.
			o.panicked = recover()
			done <- o
		}()
		o.v, o.err = f()
	}()
	select {
	case o := <-done:
		if o.panicked != nil {
			panic(o.panicked)
		}
		return o.v, c.checkError(o.err)
	case <-ctx.Done():
		c.lost, c.pending = errAbandoned, returned
		c.late = func() {
			if opened, ok := any((<-done).v).(io.Closer); ok {
				_ = opened.Close()
			}
		}
		return none, ctx.Err()
	}
}

// end closes the driver's connection when the last call of the driver has returned, and waits for
// that. It closes statements first: with an unfinished statement libsqliteodbc does not disconnect,
// and keeps its file locked.
func (c *conn) end() error {
	if c.pending != nil {
		<-c.pending
		c.late()
	}
	for r := range c.rows {
		_ = r.real.Close()
	}
	for s := range c.stmts {
		_ = s.real.Close()
	}
	return c.bare.Close()
}

// Close closes the connection at once if nothing is under way on it.
func (c *conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return c.end()
}

// Prepare is PrepareContext without a context.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares a statement. The server may make it wait for a lock.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	si, err := call(ctx, c, func() (driver.Stmt, error) { return c.bare.Prepare(query) })
	if err != nil {
		return nil, c.noteError(err)
	}
	s := &stmt{conn: c, real: si, query: query}
	c.stmts[s] = struct{}{}
	return s, nil
}

// closeStatements closes all that are prepared.
func (c *conn) closeStatements() {
	for s := range c.stmts {
		_ = s.Close()
	}
}

// execute runs a statement of ours.
func (c *conn) execute(ctx context.Context, query string) error {
	si, err := c.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	_, err = si.(*stmt).ExecContext(ctx, nil)
	if e := si.Close(); err == nil {
		err = e
	}
	return err
}

// ask runs a query of ours and returns its rows as text; NULL is empty.
func (c *conn) ask(ctx context.Context, query string) (answer [][]string, err error) {
	si, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, si.Close()) }()
	rows, err := si.(*stmt).QueryContext(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return readText(rows)
}

//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"

	odbcdriver "github.com/alexbrainman/odbc"
	"github.com/alexbrainman/odbc/api"
)

// stmt wraps a statement of the driver.
type stmt struct {
	conn   *conn
	real   driver.Stmt
	query  string
	closed bool

	// bound are the columns to whose memory the ODBC driver writes at each row, by their places.
	// old are columns of earlier executions, at places to which nothing was bound since. Nobody
	// unbinds them.
	bound, old []*odbcdriver.BindableColumn
}

var (
	_ driver.StmtExecContext  = (*stmt)(nil)
	_ driver.StmtQueryContext = (*stmt)(nil)
)

// Close frees the statement.
func (s *stmt) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.conn.usable() != nil {
		return nil // the connection closes what is left
	}
	delete(s.conn.stmts, s)
	return s.real.Close()
}

func (s *stmt) NumInput() int { return s.real.NumInput() }

// Exec is ExecContext without a context.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.execute(context.Background(), args)
}

// Query is QueryContext without a context.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.open(context.Background(), args)
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	values, err := unnamed(args)
	if err != nil {
		return nil, err
	}
	return s.execute(ctx, values)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	values, err := unnamed(args)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, values)
}

func (s *stmt) execute(ctx context.Context, args []driver.Value) (driver.Result, error) {
	return run(ctx, s, func() (driver.Result, error) {
		return s.real.Exec(args) //nolint:staticcheck // the driver has nothing newer
	})
}

// ready makes the statement ready to be executed, or says why it must not be.
func (s *stmt) ready(ctx context.Context) error {
	c := s.conn
	if err := c.usable(); err != nil {
		return err
	}
	if err := c.database.refuses(c, s.query); err != nil {
		return err
	}
	if s.bound != nil && c.database.renewsQueries() {
		return c.noteError(s.renew(ctx))
	}
	return nil
}

// run calls how, which executes the statement. A statement that no longer fits its tables is
// prepared again, once: no part of it was executed.
func run[T any](ctx context.Context, s *stmt, how func() (T, error)) (T, error) {
	c := s.conn
	if err := s.ready(ctx); err != nil {
		var none T
		return none, err
	}
	c.executions++
	v, err := call(ctx, c, how)
	if c.lost != nil && c.database.harmless(err, s.query) {
		c.executions--
	}
	// In transactionMode the statements before the error were rolled back: no statement may follow.
	if err == nil || ctx.Err() != nil || c.lost != nil || c.tx != nil && c.mode == transactionMode {
		return v, c.noteError(err)
	}
	if c.database.mend(ctx, c, err) || c.database.stale(err, s.query) && s.renew(ctx) == nil {
		if w, e := call(ctx, c, how); e == nil || ctx.Err() != nil || c.lost != nil {
			return w, c.noteError(e)
		}
	}
	return v, c.noteError(err)
}

// renew prepares the statement anew.
func (s *stmt) renew(ctx context.Context) error {
	real, err := call(ctx, s.conn, func() (driver.Stmt, error) { return s.conn.bare.Prepare(s.query) })
	if err != nil {
		return err
	}
	_ = s.real.Close()
	s.real, s.bound, s.old = real, nil, nil
	return nil
}

// noRows is the text of the driver's error for a statement that was executed and gives no rows. The
// error has no type of its own.
const noRows = "Stmt did not create a result set"

func (s *stmt) open(ctx context.Context, args []driver.Value) (driver.Rows, error) {
	real, err := run(ctx, s, func() (driver.Rows, error) {
		return s.real.Query(args) //nolint:staticcheck // the driver has nothing newer
	})
	switch {
	case err == nil:
		s.keepBound()
		return newRows(s, real), nil
	case err.Error() == noRows:
		return none{}, nil
	}
	return nil, err
}

// keepBound keeps the memory of columns that the driver has bound to the statement, until their
// places are bound to other memory.
//
// Text and bytes are read from the ODBC driver and not from that memory, which is as long as the
// declared length of the column. There longer values (255 is declared for TEXT in SQLite, and for
// varchar without a length in PostgreSQL) are cut off, and the driver panics. This remains so if
// nobody knows whether the ODBC driver gives data of a column in front of a bound column
// (SQL_GD_ANY_COLUMN).
func (s *stmt) keepBound() {
	h := handleOf(s.real)
	if h == nil || s.conn.strict {
		return
	}
	bound := make([]*odbcdriver.BindableColumn, len(h.Cols))
	for i, column := range h.Cols {
		b, ok := column.(*odbcdriver.BindableColumn)
		if ok && b.IsBound {
			bound[i] = b
		}
		if ok && b.IsVariableWidth {
			h.Cols[i] = unbound{&odbcdriver.NonBindableColumn{BaseColumn: b.BaseColumn}}
		}
	}
	for i, b := range s.bound {
		if b != nil && (i >= len(bound) || bound[i] == nil) {
			s.old = append(s.old, b)
		}
	}
	s.bound = bound
}

// unbound is a column that the driver would have bound, and now reads as a column that cannot be
// bound.
type unbound struct{ odbcdriver.Column }

// Value gives empty bytes as the bound column does, not as nil.
func (u unbound) Value(h api.SQLHSTMT, i int) (driver.Value, error) {
	v, err := u.Column.Value(h, i)
	if b, ok := v.([]byte); ok && b == nil {
		return []byte{}, err
	}
	return v, err
}

var errNamed = errors.New("sql: driver does not support the use of Named Parameters")

// unnamed is what database/sql makes of arguments for a driver that knows no
// names.
func unnamed(args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		if arg.Name != "" {
			return nil, errNamed
		}
		values[i] = arg.Value
	}
	return values, nil
}

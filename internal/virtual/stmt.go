package virtual

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// stmt is a virtual prepared statement: a text, and the virtual connection in whose checkouts the
// text runs. The driver's statement is found or made on the session that serves the checkout.
type stmt struct {
	text
	conn *conn
}

var (
	_ driver.Stmt              = (*stmt)(nil)
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// CheckNamedValue accepts everything, see conn.CheckNamedValue.
func (s *stmt) CheckNamedValue(*driver.NamedValue) error { return nil }

// NumInput leaves the counting to the conversion: the driver's checker may remove
// arguments, and it runs after database/sql has counted.
func (s *stmt) NumInput() int { return -1 }

// Close sends nothing, unless the program owns the driver's statement. The cache owns the other
// statements, and database/sql may call Close under its own lock, under which we do no I/O.
func (s *stmt) Close() error {
	if w := s.conn.watcher; w != nil {
		w.Closed(s)
	}
	s.conn.forgetGeneration(&s.text)
	return s.conn.closeOwned(&s.text)
}

// ExecContext executes the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	op := s.conn.operate(executing)
	op.virtual, op.Text, op.Args = &s.text, s.query, args
	op.setText()
	s.conn.gives()
	return op.resultOf(op.do(ctx))
}

// QueryContext executes the statement and returns its rows.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	op := s.conn.operate(querying)
	op.virtual, op.Text, op.Args = &s.text, s.query, args
	op.setText()
	return op.rowsOf(op.do(ctx))
}

// Exec is ExecContext without a context.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), driverconn.Named(args))
}

// Query is QueryContext without a context.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), driverconn.Named(args))
}

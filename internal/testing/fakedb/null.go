package fakedb

import (
	"context"
	"database/sql/driver"
	"io"
)

// NullConnector leads to a driver that does nothing, as fast as can be: the
// floor under benchmarks. Every Exec affects one row, every query has Rows rows
// of one integer, every transaction succeeds. Nothing that it does allocates,
// except opening and preparing.
//
// A connection must not be used by two goroutines at once; database/sql sees to
// that.
type NullConnector struct {
	// Rows is the number of rows of a query.
	Rows int

	// NoValidator leaves driver.Validator away.
	NoValidator bool
}

// NullDriver is the driver of a [NullConnector].
type NullDriver struct{}

var (
	_ driver.Connector          = NullConnector{}
	_ driver.ExecerContext      = (*nullConn)(nil)
	_ driver.QueryerContext     = (*nullConn)(nil)
	_ driver.ConnBeginTx        = (*nullConn)(nil)
	_ driver.ConnPrepareContext = (*nullConn)(nil)
	_ driver.SessionResetter    = (*nullConn)(nil)
	_ driver.Validator          = (*nullConn)(nil)
	_ driver.Pinger             = (*nullConn)(nil)
	_ driver.StmtExecContext    = (*nullStmt)(nil)
	_ driver.StmtQueryContext   = (*nullStmt)(nil)
)

// Connect opens nothing.
func (c NullConnector) Connect(context.Context) (driver.Conn, error) {
	n := &nullConn{rows: c.Rows}
	if c.NoValidator {
		return struct {
			*nullConn
			valid
		}{nullConn: n}, nil
	}
	return n, nil
}

// Driver returns the null driver.
func (c NullConnector) Driver() driver.Driver { return NullDriver{} }

// Open opens nothing, for queries without rows.
func (NullDriver) Open(string) (driver.Conn, error) { return &nullConn{}, nil }

// nullConn is also its own transaction, and holds its own rows: a connection
// has at most one of each that is in use.
type nullConn struct {
	rows int
	open nullRows
}

var oneAffected driver.Result = driver.RowsAffected(1)

func (c *nullConn) Prepare(string) (driver.Stmt, error) { return &nullStmt{c}, nil }
func (c *nullConn) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return &nullStmt{c}, nil
}
func (c *nullConn) Close() error              { return nil }
func (c *nullConn) Begin() (driver.Tx, error) { return c, nil }
func (c *nullConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c, nil
}
func (c *nullConn) Commit() error                      { return nil }
func (c *nullConn) Rollback() error                    { return nil }
func (c *nullConn) Ping(context.Context) error         { return nil }
func (c *nullConn) ResetSession(context.Context) error { return nil }
func (c *nullConn) IsValid() bool                      { return true }

func (c *nullConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return oneAffected, nil
}

// QueryContext reuses the connection's rows, unless they are open still: then
// it allocates.
func (c *nullConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if c.open.inUse {
		return &nullRows{left: c.rows, inUse: true}, nil
	}
	c.open = nullRows{left: c.rows, inUse: true}
	return &c.open, nil
}

type nullStmt struct{ conn *nullConn }

func (s *nullStmt) Close() error                               { return nil }
func (s *nullStmt) NumInput() int                              { return -1 }
func (s *nullStmt) Exec([]driver.Value) (driver.Result, error) { return oneAffected, nil }
func (s *nullStmt) Query([]driver.Value) (driver.Rows, error) {
	return s.conn.QueryContext(context.Background(), "", nil)
}

func (s *nullStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return oneAffected, nil
}

func (s *nullStmt) QueryContext(ctx context.Context, _ []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, "", nil)
}

type nullRows struct {
	left  int
	inUse bool
}

var (
	nullColumns = []string{"n"}
	nullValue   = driver.Value(int64(1))
)

func (r *nullRows) Columns() []string { return nullColumns }

func (r *nullRows) Close() error {
	r.inUse = false
	return nil
}

func (r *nullRows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	dest[0] = nullValue
	return nil
}

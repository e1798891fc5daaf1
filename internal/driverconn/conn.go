// Package driverconn calls a driver's connection as database/sql does: it finds the
// optional interfaces, converts arguments and falls back to the older methods, with
// database/sql's outcomes and error texts.
package driverconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Conn is a driver's connection with its optional interfaces. They are looked up once: a type
// assertion to an interface costs more than a call. One goroutine at a time uses a Conn, as it uses
// the driver's connection.
type Conn struct {
	// nil if the driver's connection does not implement them.
	Checker   driver.NamedValueChecker
	Resetter  driver.SessionResetter
	Validator driver.Validator

	queryerCtx driver.QueryerContext
	execerCtx  driver.ExecerContext
	execer     driver.Execer //nolint:staticcheck // drivers without ExecerContext have it
	beginner   driver.ConnBeginTx
	queryer    driver.Queryer //nolint:staticcheck // as above

	Driver driver.Conn
}

// New looks up what c implements.
func New(c driver.Conn) Conn {
	conn := Conn{Driver: c}
	conn.Checker, _ = c.(driver.NamedValueChecker)
	conn.Resetter, _ = c.(driver.SessionResetter)
	conn.Validator, _ = c.(driver.Validator)
	conn.beginner, _ = c.(driver.ConnBeginTx)
	conn.execerCtx, _ = c.(driver.ExecerContext)
	conn.execer, _ = c.(driver.Execer) //nolint:staticcheck // see the field
	conn.queryerCtx, _ = c.(driver.QueryerContext)
	conn.queryer, _ = c.(driver.Queryer) //nolint:staticcheck // see the field
	return conn
}

// CanExec reports whether the driver executes statements that are not prepared. If it does not,
// database/sql gets driver.ErrSkip and prepares.
func (c *Conn) CanExec() bool { return c.execerCtx != nil || c.execer != nil }

// CanQuery reports whether the driver executes queries that are not prepared.
func (c *Conn) CanQuery() bool { return c.queryerCtx != nil || c.queryer != nil }

// The methods below call the driver as database/sql's ctxutil.go does: the method
// with a context if the driver has it, else the older method, and the context is
// checked before or after it.

// Exec executes a statement that is not prepared. CanExec must be true.
func (c *Conn) Exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.execerCtx != nil {
		return c.execerCtx.ExecContext(ctx, query, args)
	}
	plain, err := positional(ctx, args)
	if err != nil {
		return nil, err
	}
	return c.execer.Exec(query, plain)
}

// Query runs a query that is not prepared. CanQuery must be true.
func (c *Conn) Query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.queryerCtx != nil {
		return c.queryerCtx.QueryContext(ctx, query, args)
	}
	plain, err := positional(ctx, args)
	if err != nil {
		return nil, err
	}
	return c.queryer.Query(query, plain)
}

// Prepare prepares a statement.
func (c *Conn) Prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := c.Driver.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	si, err := c.Driver.Prepare(query)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = si.Close()
		return nil, err
	}
	return si, nil
}

// Begin begins a transaction. After an error the transaction may be open all the same.
func (c *Conn) Begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.beginner != nil {
		return c.beginner.BeginTx(ctx, opts)
	}
	if sql.IsolationLevel(opts.Isolation) != sql.LevelDefault {
		return nil, errors.New("sql: driver does not support non-default isolation level")
	}
	if opts.ReadOnly {
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	txi, err := c.Driver.Begin() //nolint:staticcheck // the driver has nothing newer
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = txi.Rollback()
		return nil, err
	}
	return txi, nil
}

// Ping asks the driver, if it has Ping, whether the server answers.
func (c *Conn) Ping(ctx context.Context) error {
	if p, ok := c.Driver.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// ExecStmt executes a prepared statement.
func ExecStmt(ctx context.Context, si driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if s, ok := si.(driver.StmtExecContext); ok {
		return s.ExecContext(ctx, args)
	}
	plain, err := positional(ctx, args)
	if err != nil {
		return nil, err
	}
	return si.Exec(plain) //nolint:staticcheck // the driver has nothing newer
}

// QueryStmt runs a prepared query.
func QueryStmt(ctx context.Context, si driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if s, ok := si.(driver.StmtQueryContext); ok {
		return s.QueryContext(ctx, args)
	}
	plain, err := positional(ctx, args)
	if err != nil {
		return nil, err
	}
	return si.Query(plain) //nolint:staticcheck // the driver has nothing newer
}

// Command executes a statement, prepared if the driver asks for it. The arguments must have the
// form that the driver wants.
func (c *Conn) Command(ctx context.Context, text string, args ...driver.NamedValue) error {
	if c.CanExec() {
		if _, err := c.Exec(ctx, text, args); err != driver.ErrSkip {
			return err
		}
	}
	si, err := c.Prepare(ctx, text)
	if err != nil {
		return err
	}
	_, err = ExecStmt(ctx, si, args)
	if e := si.Close(); err == nil {
		err = e
	}
	return err
}

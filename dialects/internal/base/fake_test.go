package base

import (
	"context"
	"database/sql/driver"
	"errors"
)

var errFake = errors.New("fake")

// bare has only what driver.Conn demands. Its statements know no context.
type bare struct {
	log    []string
	block  chan struct{} // Exec waits for it, if set
	panics bool
}

func (c *bare) Prepare(query string) (driver.Stmt, error) {
	c.log = append(c.log, "prepare "+query)
	return bareStmt{c}, nil
}
func (c *bare) Close() error { c.log = append(c.log, "close"); return nil }
func (c *bare) Begin() (driver.Tx, error) {
	return nil, errFake
}

type bareStmt struct{ c *bare }

func (s bareStmt) Close() error  { s.c.log = append(s.c.log, "close stmt"); return nil }
func (s bareStmt) NumInput() int { return 0 }
func (s bareStmt) Exec([]driver.Value) (driver.Result, error) {
	if s.c.panics {
		panic("no")
	}
	if s.c.block != nil {
		<-s.c.block
	}
	s.c.log = append(s.c.log, "exec")
	return driver.ResultNoRows, nil
}
func (s bareStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errFake }

// oldExec has the Exec of old.
type oldExec struct {
	bare
	skip bool
}

func (c *oldExec) Exec(query string, _ []driver.Value) (driver.Result, error) {
	if c.skip {
		return nil, driver.ErrSkip
	}
	c.log = append(c.log, "old "+query)
	return driver.ResultNoRows, nil
}

// modern has what a driver of today has.
type modern struct {
	bare
	skip, invalid bool
}

func (c *modern) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if c.skip {
		return nil, driver.ErrSkip
	}
	c.log = append(c.log, "modern "+query)
	return driver.ResultNoRows, ctx.Err()
}
func (c *modern) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	c.log = append(c.log, "prepare context "+query)
	return modernStmt{bareStmt{&c.bare}}, nil
}
func (c *modern) Ping(context.Context) error { return errFake }
func (c *modern) IsValid() bool              { return !c.invalid }

type modernStmt struct{ bareStmt }

func (s modernStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	s.c.log = append(s.c.log, "exec context")
	return driver.ResultNoRows, nil
}

// connector hands out one connection.
type connector struct {
	conn   driver.Conn
	closed int
	secret string
}

func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }
func (c *connector) Driver() driver.Driver                        { return fakeDriver{} }
func (c *connector) Close() error                                 { c.closed++; return nil }

type fakeDriver struct{}

func (fakeDriver) Open(string) (driver.Conn, error) { return nil, errFake }

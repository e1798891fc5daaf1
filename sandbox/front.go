package sandbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/task"
)

// virtual is what a virtual connection of pooldriver has.
type virtual interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	direct.Conn
}

// front gives the connections of the Connector over the stage. They know who uses them. They refuse operations that would wait
// for ever or come after the test.
func (s *sandbox) front(c driver.Conn) driver.Conn {
	fc := &frontConn{virtual: c.(virtual), s: s}
	fc.take()
	return fc
}

// frontConn is one connection of that Connector.
type frontConn struct {
	virtual
	s *sandbox
	checkout
}

// checkout is one use of a frontConn. The lock of the sandbox protects it. Its owner reads it without
// the lock.
type checkout struct {
	taken place           // who took it
	use   string          // what its last operation was, for the report
	text  string          // of that operation
	at    place           // of that operation
	ctx   context.Context // of that operation
	tasks *task.Task      // the explicit task of that operation
	tx    bool            // its transaction is open, begun at txAt
	txAt  place
	txCtx context.Context // of BeginTx: database/sql rolls back when it ends
	inTx  *task.Task      // the explicit task in which the transaction has begun
	used  bool            // something was executed: it may hold the session
	busy  bool            // an operation runs
}

// Unwrap returns pooldriver's own connection, for Raw and InTx.
func (c *frontConn) Unwrap() driver.Conn { return c.virtual }

func (c *frontConn) take() {
	at := here()
	c.s.lift()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.checkout = checkout{taken: at}
	c.s.checkouts[c] = true
}

// lift removes a limit that the program has set on the handle (SetMaxOpenConns). The test has one
// session anyway, and database/sql would wait for a connection where nobody sees who waits.
func (s *sandbox) lift() {
	if db := s.db.Load(); db != nil && db.Stats().MaxOpenConnections > 0 {
		db.SetMaxOpenConns(0)
	}
}

func (c *frontConn) give() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.checkouts[c] && c.use == useQuery && !c.ofConn() {
		c.s.cutLocked(c, c.ctx) // rows
	}
	delete(c.s.checkouts, c)
}

func (c *frontConn) ResetSession(ctx context.Context) error {
	if err := c.virtual.ResetSession(ctx); err != nil {
		return err
	}
	c.take()
	return nil
}

func (c *frontConn) IsValid() bool {
	valid := c.virtual.IsValid()
	c.give()
	return valid
}

func (c *frontConn) Close() error {
	err := c.virtual.Close()
	c.give()
	return err
}

// enter records an operation, or refuses it.
func (c *frontConn) enter(ctx context.Context, use, text string) error {
	at, p := here(), task.PlaceOf(ctx)
	c.s.lift()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.s.closedLocked(use, text, at); err != nil {
		return err
	}
	var in *task.Task
	if p.Task != nil && !p.Task.Implicit() {
		in = p.Task
	}
	if !c.used {
		if err := c.s.circleLocked(c, in, use, text, at); err != nil {
			return err
		}
	}
	c.use, c.text, c.at, c.ctx, c.tasks, c.busy = use, text, at, ctx, in, true
	c.s.last = c
	c.s.lastText, c.s.lastAt = text, at
	return nil
}

func (c *frontConn) leave() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.busy, c.used = false, true
}

// closedLocked returns why nothing can be executed in the sandbox now.
func (s *sandbox) closedLocked(use, text string, at place) error {
	switch {
	case s.ended:
		return fmt.Errorf("sandbox: the test %s has ended, and %s came after it, at %v: let the test wait until everything that it has started has ended", s.name, s.what(use, text), at)
	// Package testing orders these reads of the tests' fields: a test's own goroutine goes on beside a subtest
	// only when that has called t.Parallel.
	case s.child != nil && at.goroutine == s.goroutine && s.child.goroutine != s.goroutine && isParallel(s.child.t):
		return s.child.lateParallel()
	case s.parent != nil && at.goroutine == s.goroutine && isParallel(s.t):
		return s.lateParallel()
	case s.child != nil:
		return fmt.Errorf("sandbox: the subtest %s has a level of its own in the sandbox of %s, and %s, at %v, uses the handle of the test around it; in the subtest use the handle of the subtest", s.child.name, s.name, s.what(use, text), at)
	}
	return nil
}

// what describes an operation without literals.
func (s *sandbox) what(use, text string) string {
	if text == "" {
		return use
	}
	return use + " (" + s.stage.brief(text) + ")"
}

// ofConn reports whether the checkout is that of a *sql.Conn.
func (c *checkout) ofConn() bool {
	return c.taken.through("database/sql.(*DB).Conn") || c.taken.through("database/sql.(*Conn).")
}

// describe says what a checkout is, for reports.
func (c *checkout) describe(s *sandbox) string {
	switch {
	case c.tx:
		return "a transaction that is open"
	case c.ofConn():
		return "a *sql.Conn that is open"
	case c.busy:
		return s.what(c.use, c.text) + " that runs"
	case c.use == useQuery:
		return "rows that are open (" + s.stage.brief(c.text) + ")"
	case c.use == "":
		return "a connection that is in use"
	}
	return s.what(c.use, c.text) + " whose connection is in use"
}

// since returns the place where the thing was opened that describe names.
func (c *checkout) since() place {
	switch {
	case c.tx:
		return c.txAt
	case c.use == useQuery && !c.ofConn(), c.busy:
		return c.at
	}
	return c.taken
}

// The uses of operations.
const (
	useExec    = "a statement"
	useQuery   = "a query"
	usePrepare = "a prepared statement"
	useBegin   = "a transaction"
	usePing    = "a ping"
)

// doing is do for an operation with a result.
func doing[T any](ctx context.Context, c *frontConn, use, text string, operation func() (T, error)) (result T, err error) {
	err = c.do(ctx, use, text, func() (err error) {
		result, err = operation()
		return err
	})
	return result, err
}

func (c *frontConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return doing(ctx, c, useExec, query, func() (driver.Result, error) { return c.virtual.ExecContext(ctx, query, args) })
}

func (c *frontConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return doing(ctx, c, useQuery, query, func() (driver.Rows, error) { return c.virtual.QueryContext(ctx, query, args) })
}

func (c *frontConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *frontConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	prepared, err := doing(ctx, c, usePrepare, query, func() (driver.Stmt, error) { return c.virtual.PrepareContext(ctx, query) })
	if err != nil {
		return nil, err
	}
	s := &frontStmt{c: c, query: query, prepared: prepared.(preparedStmt), at: here()}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.prepared[s] = true
	return s, nil
}

func (c *frontConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *frontConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := doing(ctx, c, useBegin, "", func() (driver.Tx, error) { return c.virtual.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return c.begun(ctx, tx), nil
}

// begun records a transaction, which ends with lifetime.
func (c *frontConn) begun(lifetime context.Context, tx driver.Tx) *frontTx {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.tx, c.txAt, c.txCtx, c.inTx = true, c.at, lifetime, c.tasks
	return &frontTx{c, tx}
}

// Statements of module pgxpooldriver are sent by the driver's own connection. Below, each of them is a function of Raw, which
// stands in a savepoint.

func (c *frontConn) Attach(ctx context.Context) error {
	return c.do(ctx, usePing, "", func() error { return c.virtual.Attach(ctx) })
}

func (c *frontConn) Execute(ctx context.Context, call *direct.Call) (driver.Rows, error) {
	use := useExec
	if call.Queries {
		use = useQuery
	}
	return doing(ctx, c, use, call.Text, func() (driver.Rows, error) { return c.virtual.Execute(ctx, call) })
}

func (c *frontConn) Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error) {
	tx, err := doing(ctx, c, useBegin, "", func() (driver.Tx, error) { return c.virtual.Start(ctx, lifetime, opts, nested) })
	if err != nil || nested {
		return tx, err
	}
	return c.begun(lifetime, tx), nil
}

func (c *frontConn) Lend(ctx context.Context, effect dialects.Effect) (direct.Loan, error) {
	return doing(ctx, c, useExec, "", func() (direct.Loan, error) { return c.virtual.Lend(ctx, effect) })
}

// Ping needs no session where it would wait for its own goroutine: whoever has the session knows
// that it works.
func (c *frontConn) Ping(ctx context.Context) error {
	err := c.do(ctx, usePing, "", func() error { return c.virtual.Ping(ctx) })
	if circle, ok := errors.AsType[*waitError](err); ok && circle.err == nil {
		return nil
	}
	return err
}

// frontTx is a transaction of the handle.
type frontTx struct {
	c  *frontConn
	tx driver.Tx
}

func (t *frontTx) Commit() error   { return t.end(t.tx.Commit) }
func (t *frontTx) Rollback() error { return t.end(t.tx.Rollback) }

func (t *frontTx) end(how func() error) error {
	defer func() {
		t.c.s.mu.Lock()
		defer t.c.s.mu.Unlock()
		t.c.s.cutLocked(t.c, t.c.txCtx)
		t.c.tx, t.c.use, t.c.text = false, useBegin, ""
	}()
	return how()
}

// preparedStmt is what a virtual statement of pooldriver has.
type preparedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

// frontStmt is a prepared statement of the handle.
type frontStmt struct {
	prepared preparedStmt
	c        *frontConn
	query    string
	at       place
}

func (s *frontStmt) NumInput() int { return s.prepared.NumInput() }

func (s *frontStmt) CheckNamedValue(v *driver.NamedValue) error { return s.prepared.CheckNamedValue(v) }

func (s *frontStmt) Close() error {
	s.c.s.mu.Lock()
	delete(s.c.s.prepared, s)
	s.c.s.mu.Unlock()
	return s.prepared.Close()
}

func (s *frontStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return doing(ctx, s.c, useExec, s.query, func() (driver.Result, error) { return s.prepared.ExecContext(ctx, args) })
}

func (s *frontStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return doing(ctx, s.c, useQuery, s.query, func() (driver.Rows, error) { return s.prepared.QueryContext(ctx, args) })
}

func (s *frontStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errOld }
func (s *frontStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errOld }

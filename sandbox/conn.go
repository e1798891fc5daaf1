package sandbox

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// conn is what the Connector of a sandbox takes for a real connection. It runs on a stage. A
// transaction that it begins is a savepoint. It dies where the driver would have closed a real
// connection, and then the stage makes another one.
type conn struct {
	stage    *stage
	effect   dialects.Effect // of its statements, since it was clean
	alone    dialects.SandboxLocals
	settings []dialects.ContextSetting // for the next statement
	took     bool                      // a statement has put settings in force
	lent     bool                      // a function of Raw has had the driver's connection
	changed  change                    // the first change of the session since it was clean
	dead     bool
	ended    error // of the context whose end has ended the connection; nil: none
}

// change is what has changed the session, or may have.
type change struct {
	what string // a statement without literals; empty: nothing has
	at   place
}

var (
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
)

// usable returns why the connection cannot be used; nil: it can.
func (c *conn) usable() error {
	switch {
	case c.stage.broken != nil:
		return c.stage.broken
	case c.dead:
		return driver.ErrBadConn
	}
	return nil
}

// ready returns why nothing can begin on the connection, for a call with this context; nil: it can.
func (c *conn) ready(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return err
	}
	return ctx.Err()
}

// die ends the connection as the server ends a session whose client has gone: the transaction of
// the program is rolled back, or its last statement, and the session's state is cleaned.
func (c *conn) die() error {
	if c.dead {
		return nil
	}
	c.dead = true
	st := c.stage
	if st.broken != nil {
		return nil
	}
	st.closeRows()
	var err error
	switch {
	case st.tx != nil:
		err = st.rollback()
	case st.guard && st.server.TxStatus() == dialects.TxFailed:
		err = st.back(guardName)
	}
	if err == nil && c.effect.Dirty() {
		err = c.clean()
	}
	return err
}

// clean brings the session back to its state at connect, as far as that goes in a transaction.
func (c *conn) clean() error {
	st := c.stage
	clear(st.bases)
	ctx, cancel := st.bounded()
	defer cancel()
	if setter, ok := st.server.(dialects.SettingsSetter); ok && st.keeper == nil {
		if err := setter.SetSettings(ctx, nil); err != nil {
			return err
		}
	}
	_, err := st.server.CleanInTx(ctx, c.effect)
	changed := c.changed
	c.effect, c.changed = dialects.Clean, change{}
	if errors.Is(err, dialects.ErrCannotClean) {
		if changed.what != "" {
			st.tell.note(fmt.Sprintf("the session has changed in a way that cannot be undone before the end of the test: %s, at %v", changed.what, changed.at))
		}
		return nil
	}
	return err
}

// changes records what changes the session.
func (c *conn) changes(what string, at place) {
	if c.changed.what == "" {
		c.changed = change{what, at}
	}
}

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares in a savepoint, because a text with a mistake is an error, too.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	if err := c.stage.refuses(query); err != nil {
		return nil, err
	}
	switch word, err := c.controls(query); {
	case err != nil:
		return nil, err
	case word != "":
		return &control{c, query}, nil
	}
	s, err := c.begin(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	si, refused := c.stage.driver.Prepare(context.WithoutCancel(ctx), query)
	s.returned()
	s.preparing = true
	if err = s.end(refused); err != nil {
		if refused == nil {
			_ = si.Close()
		}
		return nil, err
	}
	return wrapStmt(c, si, query), nil
}

// ExecContext executes a text. A text that begins or ends a transaction does so with a savepoint.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	if !c.stage.driver.CanExec() {
		return nil, driver.ErrSkip
	}
	if word, err := c.controls(query); word != "" || err != nil {
		if err == nil {
			err = c.control(ctx, word, query)
		}
		return driver.RowsAffected(0), err
	}
	var res driver.Result
	err := c.run(ctx, query, args, func(ctx context.Context) (err error) {
		res, err = c.stage.driver.Exec(ctx, query, args)
		return err
	})
	return res, err
}

// run runs a statement without rows. The driver gets a context without an end.
func (c *conn) run(ctx context.Context, text string, args []driver.NamedValue, call func(context.Context) error) error {
	s, err := c.begin(ctx, text, args)
	if err != nil {
		return err
	}
	err = call(context.WithoutCancel(ctx))
	s.returned()
	return s.end(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	if !c.stage.driver.CanQuery() {
		return nil, driver.ErrSkip
	}
	if word, err := c.controls(query); word != "" || err != nil {
		if err == nil {
			err = c.control(ctx, word, query)
		}
		return noRows{}, err
	}
	return c.query(ctx, query, args, func(ctx context.Context) (driver.Rows, error) {
		return c.stage.driver.Query(ctx, query, args)
	})
}

// query runs a statement with rows.
func (c *conn) query(ctx context.Context, text string, args []driver.NamedValue, call func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	s, err := c.begin(ctx, text, args)
	if err != nil {
		return nil, err
	}
	real, err := call(context.WithoutCancel(ctx))
	s.returned()
	if err != nil {
		return nil, s.end(err)
	}
	if s.guarded && ctx.Err() != nil {
		return nil, s.end(real.Close())
	}
	s.answered = true
	s.wait.end()
	return wrapRows(s, real), nil
}

// BeginTx begins a savepoint. The isolation level is that of the sandbox.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if c.stage.tx != nil {
		return nil, errors.New("sandbox: a transaction is open already on this connection")
	}
	if err := c.stage.begin(opts); err != nil {
		return nil, err
	}
	return &transaction{c}, nil
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// transaction is a transaction of the program. A text may have ended it: then its methods do what
// COMMIT and ROLLBACK do on the server.
type transaction struct{ c *conn }

func (t *transaction) Commit() error {
	return t.end(func(st *stage) error {
		if st.server.TxStatus() == dialects.TxFailed {
			return cmp.Or(st.rollback(), st.traits.FailedCommit)
		}
		return st.commit()
	})
}

func (t *transaction) Rollback() error {
	return t.end((*stage).rollback)
}

func (t *transaction) end(how func(*stage) error) error {
	st := t.c.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.broken == nil && t.c.ended != nil {
		return fmt.Errorf("sandbox: the transaction is rolled back already, because the context of a statement in it has ended: %w", t.c.ended)
	}
	if err := t.c.usable(); err != nil {
		return err
	}
	return how(st)
}

// CheckNamedValue is the driver's, if the driver has one.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if c.stage.driver.Checker == nil {
		return driver.ErrSkip
	}
	return c.stage.driver.Checker.CheckNamedValue(v)
}

// Ping asks the driver. Its context does not end: a ping that is given up closes the connection.
func (c *conn) Ping(ctx context.Context) error {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return err
	}
	if c.stage.server.TxStatus() == dialects.TxFailed {
		return nil // the server has answered, and some drivers ping by a statement
	}
	ctx, cancel := c.stage.bounded()
	defer cancel()
	return c.stage.driver.Ping(ctx)
}

// Close ends the connection. The real one stays.
func (c *conn) Close() error {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	return c.die()
}

// wrapStmt makes the program's statement from the driver's statement.
func wrapStmt(c *conn, si driver.Stmt, text string) driver.Stmt {
	s := &stmt{c: c, si: si, text: text}
	s.checker, _ = si.(driver.NamedValueChecker)
	if converter, ok := si.(columnConverter); ok {
		return &convertingStmt{s, converter}
	}
	return s
}

type columnConverter = driver.ColumnConverter //nolint:staticcheck // drivers have it

// stmt is a prepared statement.
type stmt struct {
	c       *conn
	si      driver.Stmt
	text    string
	checker driver.NamedValueChecker // si, if it is one
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// convertingStmt is a stmt of a driver that converts arguments by columns.
type convertingStmt struct {
	*stmt
	columnConverter
}

func (s *stmt) NumInput() int { return s.si.NumInput() }

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if s.checker != nil {
		return s.checker.CheckNamedValue(v)
	}
	return s.c.CheckNamedValue(v)
}

// Close closes the driver's statement. In a transaction that has failed, the server refuses the
// Close, and the end of the connection closes the statement.
func (s *stmt) Close() error {
	s.c.stage.mu.Lock()
	defer s.c.stage.mu.Unlock()
	return s.si.Close()
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.c.stage.mu.Lock()
	defer s.c.stage.mu.Unlock()
	var res driver.Result
	err := s.c.run(ctx, s.text, args, func(ctx context.Context) (err error) {
		res, err = driverconn.ExecStmt(ctx, s.si, args)
		return err
	})
	return res, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.c.stage.mu.Lock()
	defer s.c.stage.mu.Unlock()
	return s.c.query(ctx, s.text, args, func(ctx context.Context) (driver.Rows, error) {
		return driverconn.QueryStmt(ctx, s.si, args)
	})
}

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errOld }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errOld }

var errOld = fmt.Errorf("sandbox: statements are executed with a context: %w", errors.ErrUnsupported)

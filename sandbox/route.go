package sandbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/beneath"
)

// A program that has a global handle uses the sandbox of a test through that handle: by the context
// of each statement (Context), or for all statements (Share). From the first sandbox on, the
// connections that a Connector makes are routes: each checkout goes to the database or to a sandbox.

// routes makes the connections of a connector routes.
func routes(of beneath.Beneath) {
	of.Route(func(c driver.Conn) driver.Conn { return &route{own: c.(virtual), of: of} })
}

// route is a connection of a global handle.
type route struct {
	own virtual // to the database
	of  beneath.Beneath
	now virtual // where the present checkout goes; nil: nothing was executed in it

	// Of a checkout that goes to the database: what it has written, as far as that is not committed.
	inTx   bool
	byHand bool // a text has begun or ended a transaction, and nobody here knows whether one is open
	wrote  []*beside
}

// shared are the sandboxes of Share.
var shared struct {
	mu  sync.RWMutex
	all map[beneath.Beneath]*sandbox // guarded by mu
}

// inContext is the key of a context's sandbox on a connector.
type inContext struct{ of beneath.Beneath }

// sandboxFor returns the sandbox of a statement; nil: it goes to the database.
func (r *route) sandboxFor(ctx context.Context) *sandbox {
	if s, ok := ctx.Value(inContext{r.of}).(*sandbox); ok {
		return s
	}
	shared.mu.RLock()
	defer shared.mu.RUnlock()
	return shared.all[r.of]
}

// to returns where an operation goes. The first operation of a checkout decides for all.
func (r *route) to(ctx context.Context) (virtual, error) {
	if r.now != nil {
		return r.now, nil
	}
	s := r.sandboxFor(ctx)
	if s == nil {
		r.now = r.own
		return r.own, nil
	}
	c, err := front{s}.Connect(ctx)
	if err != nil {
		return nil, err
	}
	r.now = c.(virtual)
	return r.now, nil
}

// Unwrap is for Raw and InTx.
func (r *route) Unwrap() driver.Conn {
	if r.now != nil {
		return r.now
	}
	return r.own
}

func (r *route) CheckNamedValue(*driver.NamedValue) error { return nil }

func (r *route) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	ctx, b := r.watchBeside(ctx, query)
	res, err := c.ExecContext(ctx, query, args)
	return res, r.endBeside(ctx, b, res, err)
}

func (r *route) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	ctx, b := r.watchBeside(ctx, query)
	rows, err := c.QueryContext(ctx, query, args)
	return rows, r.endBeside(ctx, b, nil, err)
}

func (r *route) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.BeginTx(ctx, opts)
	if err != nil || c != r.own {
		return tx, err
	}
	r.inTx = true
	return &routeTx{r, tx}, nil
}

// routeTx is a transaction of the database itself.
type routeTx struct {
	r  *route
	tx driver.Tx
}

func (t *routeTx) Commit() error {
	err := t.tx.Commit()
	t.r.endTx(err == nil)
	return err
}

func (t *routeTx) Rollback() error {
	t.r.endTx(false)
	return t.tx.Rollback()
}

func (r *route) Begin() (driver.Tx, error) {
	return r.BeginTx(context.Background(), driver.TxOptions{})
}

// Ping passes the question of insideOf on: the answer is the connector, wherever the checkout goes.
func (r *route) Ping(ctx context.Context) error {
	if ctx.Value(whose{}) != nil {
		return r.own.Ping(ctx)
	}
	c, err := r.to(ctx)
	if err != nil {
		return err
	}
	return c.Ping(ctx)
}

// whose is the key of a context with which insideOf asks.
type whose struct{}

// insideOf returns the inside of the Connector of a connection; nil: it has none. Libraries around a
// Connector pass Ping on.
func insideOf(ctx context.Context, dc any) (beneath.Beneath, error) {
	p, ok := dc.(driver.Pinger)
	if !ok {
		return nil, nil
	}
	c, err := beneath.Ask(context.WithValue(ctx, whose{}, true), p)
	if c == nil {
		return nil, err
	}
	return c.Beneath(), nil
}

func (r *route) ResetSession(ctx context.Context) error { return r.own.ResetSession(ctx) }

// IsValid ends the checkout, whether it goes to the database or to a sandbox.
func (r *route) IsValid() bool {
	r.leave()
	return r.own.IsValid()
}

func (r *route) Close() error {
	r.leave()
	return r.own.Close()
}

// leave ends the checkout in a sandbox.
func (r *route) leave() {
	if r.now != nil && r.now != r.own {
		_ = r.now.IsValid()
		_ = r.now.Close()
	}
	r.now, r.inTx, r.byHand, r.wrote = nil, false, false, nil
}

func (r *route) Prepare(query string) (driver.Stmt, error) {
	return r.PrepareContext(context.Background(), query)
}

// PrepareContext prepares where the checkout goes, so that a mistake is an error at once. The
// statement belongs to the handle, which outlives the test: in a sandbox it is prepared for each
// execution.
func (r *route) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s := &routeStmt{r: r, query: query}
	if c == r.own {
		s.own = prepared.(preparedStmt)
		return s, nil
	}
	return s, prepared.Close()
}

// routeStmt is a prepared statement of a global handle.
type routeStmt struct {
	r     *route
	query string
	own   preparedStmt // for the database; nil: it was not prepared there yet
}

func (s *routeStmt) NumInput() int                              { return -1 }
func (s *routeStmt) CheckNamedValue(*driver.NamedValue) error   { return nil }
func (s *routeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errOld }
func (s *routeStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errOld }

func (s *routeStmt) Close() error {
	if s.own == nil {
		return nil
	}
	return s.own.Close()
}

// here returns the statement for the present checkout. The caller calls end after the execution.
func (s *routeStmt) here(ctx context.Context) (stmt preparedStmt, end func(), err error) {
	c, err := s.r.to(ctx)
	if err != nil {
		return nil, nil, err
	}
	if c == s.r.own && s.own != nil {
		return s.own, func() {}, nil
	}
	prepared, err := c.PrepareContext(ctx, s.query)
	if err != nil {
		return nil, nil, err
	}
	stmt = prepared.(preparedStmt)
	if c == s.r.own {
		s.own = stmt
		return stmt, func() {}, nil
	}
	return stmt, func() { _ = stmt.Close() }, nil
}

func (s *routeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	stmt, end, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, b := s.r.watchBeside(ctx, s.query)
	res, err := stmt.ExecContext(ctx, args)
	return res, s.r.endBeside(ctx, b, res, err)
}

func (s *routeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	stmt, end, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	defer end() // the rows do not need the statement, which holds only a text
	ctx, b := s.r.watchBeside(ctx, s.query)
	rows, err := stmt.QueryContext(ctx, args)
	return rows, s.r.endBeside(ctx, b, nil, err)
}

// beneathConnector returns the inside of a Connector. A virtual connection has it, and takes no real one.
func beneathConnector(connector *pooldriver.Connector) (beneath.Beneath, error) {
	if connector == nil {
		return nil, errors.New("no connector was given")
	}
	c, err := connector.Connect(context.Background())
	if err != nil {
		return nil, fmt.Errorf("the connector cannot be used: %w", err)
	}
	defer func() { _ = c.Close() }()
	return insideOf(context.Background(), c)
}

// beneathHandle returns the inside of the Connector of a handle.
func beneathHandle(ctx context.Context, db *sql.DB) (of beneath.Beneath, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(dc any) (err error) {
		of, err = insideOf(ctx, dc)
		return err
	})
	if err == nil && of == nil {
		err = errors.New("the handle is not one of a pooldriver.Connector, or is the handle of a sandbox already, or a library around the Connector hides its connections")
	}
	return of, err
}

// share makes s the sandbox of all statements on a connector; nil: none. It returns the sandbox before s.
func share(of beneath.Beneath, s *sandbox) (before *sandbox) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	before = shared.all[of]
	if shared.all == nil {
		shared.all = map[beneath.Beneath]*sandbox{}
	}
	if s == nil {
		delete(shared.all, of)
	} else {
		shared.all[of] = s
	}
	return before
}

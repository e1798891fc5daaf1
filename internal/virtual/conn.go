package virtual

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// conn is a virtual connection: what database/sql pools. It costs an object, not a session. The
// first operation after database/sql has taken conn attaches the real connection. The real
// connection goes back when database/sql puts conn back.
//
// conn has every optional interface of database/sql/driver. If the real driver lacks an
// interface, conn answers as database/sql would answer for that driver.
type conn struct {
	closed bool
	checkout

	own text // the result of toPrepare: a call of the connection ends before the next begins
	// closer ends the connector, if only this connection uses it; nil: others use it, too.
	closer func()
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

// Conn returns a virtual connection. closer, if not nil, is called when the connection is closed.
// ctx is the context with which database/sql takes the connection.
func (s *Source) Conn(ctx context.Context, closer func()) driver.Conn {
	c := &conn{checkout: checkout{source: s}, closer: closer}
	c.held.Init(s.engine, ctx)
	if s.Replicas != nil {
		c.to = new(route)
	}
	if s.Watch != nil {
		c.watcher = s.Watch()
		c.watcher.Take()
	}
	return c
}

// Beneath implements beneath.Conn.
func (c *conn) Beneath() beneath.Beneath { return c.source.Inside }

// CheckNamedValue accepts everything: the real driver's conversion runs once the session is
// known (internal/driverconn).
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// toPrepare gives op a statement to prepare and keep, if its text has arguments and the driver
// would prepare, execute and close a statement each time. If the text cannot be prepared, the program gets
// that error: the driver could not run the text either. Otherwise the text is sent as it is.
func (c *conn) toPrepare(op *operation) {
	if len(op.Args) > 0 && c.source.traits.Reprepares {
		c.own = text{query: op.Text}
		op.virtual = &c.own
	}
}

// ExecContext runs a statement, or returns driver.ErrSkip where the driver can only run
// prepared ones.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	op := c.operate(executing)
	op.Text, op.Args = query, args
	c.toPrepare(op)
	op.setText()
	c.gives()
	return op.resultOf(op.do(ctx))
}

// QueryContext runs a query, or returns driver.ErrSkip where the driver can only run
// prepared ones.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	op := c.operate(querying)
	op.Text, op.Args = query, args
	c.toPrepare(op)
	op.setText()
	return op.rowsOf(op.do(ctx))
}

// PrepareContext prepares the text on the checkout's session, so that a syntax error is reported
// now. If the same text is prepared there already, it is not prepared again. The statement that
// PrepareContext returns holds the text, not the session.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	v := &stmt{conn: c, text: text{query: query, prepared: true}}
	if c.source.traits.StatementsOwned {
		v.owner = &stmtcache.Owner{}
	}
	done := false
	defer func() {
		if !done { // an error, or a panic of the driver
			_ = v.Close()
		}
	}()
	op := c.operate(preparing)
	op.virtual, op.Text, op.TextAt = &v.text, query, &v.query
	if err := op.errOf(op.do(ctx)); err != nil {
		return nil, err
	}
	done = true
	c.gives()
	if c.watcher != nil {
		c.watcher.Prepared(v, query)
	}
	return v, nil
}

// BeginTx begins a transaction on the checkout's session. If a transaction of its task is open
// there, BeginTx begins a savepoint. With Config.LazyBegin the first statement begins the
// transaction. Without a task that statement also takes the connection. In a task BeginTx takes
// the connection at once: the first statement may come from another library, and has to find the
// transaction.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if defers(ctx, c, opts) {
		if t, err := deferBegin(ctx, c, opts); t != nil || err != nil {
			return t, err
		}
	}
	op := c.operate(beginning)
	op.Begins, op.TextAt, op.opts = true, &textBegin, opts
	return op.txOf(op.do(ctx))
}

// Ping asks the driver, if the driver has a Ping. Otherwise an attached session is enough, as for
// database/sql.
func (c *conn) Ping(ctx context.Context) error {
	if beneath.Answer(ctx, c) {
		return nil
	}
	op := c.operate(pinging)
	return op.errOf(op.do(ctx))
}

// ResetSession is called when database/sql takes the connection again. The real
// driver's ResetSession runs later, when a real connection is taken from the pool. If a wrapper above
// hides IsValid, the last checkout ends here. With driver.ErrBadConn database/sql takes another virtual
// connection.
func (c *conn) ResetSession(ctx context.Context) error {
	valid := !c.closed
	if c.held.Bound() || c.refusal != nil {
		valid = c.IsValid()
		c.source.tellHiddenValidator()
	}
	if !valid || c.isOwed() {
		return driver.ErrBadConn
	}
	c.owedTo = nil
	c.held.Take(ctx)
	if c.watcher != nil {
		c.watcher.Take()
	}
	return nil
}

// IsValid is called when database/sql puts the connection back, so it ends the checkout. It reports
// whether database/sql may use the virtual connection for another checkout. That does not depend on
// the real connection, with one exception: see isOwed.
func (c *conn) IsValid() bool {
	c.recordOwedTo()
	c.end()
	if c.watcher != nil {
		c.watcher.Give()
	}
	return !c.closed && c.refusal == nil && !c.isOwed()
}

// Close ends the virtual connection. If a real connection is attached, database/sql calls Close
// only after driver.ErrBadConn, so the real connection ends too.
func (c *conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.discard()
	if c.watcher != nil {
		c.watcher.Give()
	}
	// database/sql closes statements before their connection, but not those of a
	// transaction whose end failed with ErrBadConn.
	for len(c.aging) > 0 {
		c.forgetGeneration(c.aging[0])
	}
	if c.closer != nil {
		c.closer()
	}
	return nil
}

// Prepare is PrepareContext without a context.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin is BeginTx without a context and options.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

package pooldriver

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
)

// conn is a virtual connection: what database/sql pools. It costs an object, not a
// session; the real connection is attached at the first operation after database/sql has
// taken it, and given back when database/sql puts it back.
//
// It has every optional interface of database/sql/driver, and answers as database/sql would
// have, had it met the real driver itself.
type conn struct {
	checkout

	checkouts uint64 // so far
	fresh     int    // statements prepared in this checkout that are open
	closed    bool
	// sole: made by Driver.Open rather than by a Connector of the program's; its connector
	// ends with it.
	sole bool
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

func newConn(ctx context.Context, c *core) *conn {
	return &conn{checkout: checkout{connector: c, private: binding{connector: c}, values: ctx}, checkouts: 1}
}

// CheckNamedValue accepts everything: the real driver's conversion runs once the session is
// known (internal/driverconn).
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// prepares reports whether a query with arguments is run by a prepared statement that is
// kept: where the driver would prepare, execute and close one each time. A query that
// cannot be prepared could not be run by the driver either: its error is the answer.
func (c *conn) prepares(args []driver.NamedValue) bool {
	return len(args) > 0 && c.connector.traits.Reprepares
}

// ExecContext runs a statement, or returns driver.ErrSkip where the driver can only run
// prepared ones.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.prepares(args) {
		s := stmt{conn: c, text: text{query: query}}
		return s.ExecContext(ctx, args)
	}
	op := operation{kind: executing}
	op.setText(&c.checkout, query, args)
	if err := c.do(ctx, &op); err != nil {
		return nil, err
	}
	return op.result, nil
}

// QueryContext runs a query, or returns driver.ErrSkip where the driver can only run
// prepared ones.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.prepares(args) {
		s := stmt{conn: c, text: text{query: query}}
		return s.QueryContext(ctx, args)
	}
	op := operation{kind: querying, kept: true}
	op.setText(&c.checkout, query, args)
	if err := c.do(ctx, &op); err != nil {
		return nil, err
	}
	return op.rows.handedOut(), nil
}

// PrepareContext prepares on the checkout's session, unless the same text is prepared there
// already, so that a syntax error is reported now. The statement that it returns holds the
// text, not the session.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	v := &stmt{conn: c, text: text{query: query, prepared: true}}
	if c.connector.traits.StatementsOwned {
		v.owner = &stmtcache.Owner{}
	}
	done := false
	defer func() {
		if !done { // an error, or a panic of the driver
			_ = v.Close()
		}
	}()
	op := operation{kind: preparing, virtual: &v.text, text: &v.query, kept: true}
	if err := c.do(ctx, &op); err != nil {
		return nil, err
	}
	done = true
	v.checkout = c.checkouts
	c.fresh++
	return v, nil
}

// BeginTx begins a transaction on the checkout's session or, where one of its task is open
// there, a savepoint. With Config.LazyBegin the first statement begins it. Without a task
// it takes its connection then, too. In a task it takes one at once, because the first
// statement may be another library's, which has to find the transaction.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.connector.config.LazyBegin && c.refusal == nil && c.bound == nil && c.tx == nil {
		var p task.Place
		if err := c.connector.findPlace(ctx, &p); err != nil {
			return nil, err
		}
		if p.Task == nil {
			if err := ctx.Err(); err != nil {
				return nil, ctxerr.Of(ctx, err)
			}
			t := &transaction{checkout: &c.checkout}
			if !t.unattach(p.From) {
				return nil, c.connector.pool.DrainingError()
			}
			t.Init(ctx, opts)
			return c.begun(t), nil
		}
	}
	op := operation{kind: beginning, opts: opts, kept: true}
	if err := c.do(ctx, &op); err != nil {
		return nil, err
	}
	return op.tx, nil
}

// Ping asks the driver, where it can be asked; where not, an attached session is all that
// database/sql would have wanted.
func (c *conn) Ping(ctx context.Context) error {
	if c.isAsked(ctx) {
		return nil
	}
	return c.do(ctx, &operation{kind: pinging, kept: true})
}

// ResetSession is called when database/sql takes the connection again. There is nothing to
// do yet: the real driver's ResetSession runs when a real connection is taken from the
// pool. A wrapper above may have kept IsValid from us: then the last checkout ends here.
func (c *conn) ResetSession(ctx context.Context) error {
	valid := !c.closed
	if c.bound != nil || c.refusal != nil {
		valid = c.IsValid()
		c.connector.tellHiddenValidator()
	}
	if !valid {
		return driver.ErrBadConn
	}
	c.values = ctx
	return nil
}

// IsValid is called when database/sql puts the connection back, and so ends the checkout. A
// virtual connection is fit for another checkout, whatever the real one is, with an
// exception. database/sql closes a statement under the lock of the connections it was
// prepared on. A task that goes on holding a real connection would wait for the next user
// of the virtual one, and that user perhaps for the task: so it is not used again.
func (c *conn) IsValid() bool {
	b, fresh := c.bound, c.fresh
	c.detach()
	c.checkouts++
	c.fresh = 0
	return !c.closed && c.refusal == nil && !(fresh > 0 && b != nil && b.shares && b.held.Load() > 0 && !b.ended.Load())
}

// Close ends the virtual connection. database/sql calls it on an attached one only after
// driver.ErrBadConn, so the real connection ends too.
func (c *conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.discard()
	// database/sql closes statements before their connection, but not those of a
	// transaction whose end failed with ErrBadConn.
	for len(c.aging) > 0 {
		c.endText(c.aging[0])
	}
	if c.sole {
		c.connector.close()
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

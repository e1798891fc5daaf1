package virtual

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// shortWay is a statement that is not prepared, belongs to no task, has a known text that changes
// data at most, and succeeds: nearly every statement of a program. Whatever else may happen to a
// statement is an operation's. The operation takes over at any point: from the beginning, when the
// connection is there, or with the driver's error.
type shortWay struct {
	c    *checkout
	conn *binding.Conn // lent and locked
	text *textcache.Text
	args []driver.NamedValue
}

// begin finds the connection of a statement. ok is false if nothing was done, and the statement is
// an operation from the beginning.
func (s *shortWay) begin(ctx context.Context, c *checkout, query string, args []driver.NamedValue) (ok bool, err error) {
	if c.refusal != nil || ctxsettings.Used() {
		return false, nil
	}
	text := c.last
	if text == nil || text.Query != query {
		var again bool
		if text, again = c.source.texts.Of(c.source.config.Dialect, query); !again {
			return false, nil
		}
		c.last = text
	}
	if !session.LeavesNothing(text.Effect) {
		return false, nil
	}
	s.c, s.text, s.args = c, text, args
	if c.Bound() {
		s.conn, err = c.Again(ctx, &text.Query)
	} else {
		s.conn, err = c.Borrow(ctx, &text.Query, false)
	}
	if err != nil {
		return true, ctxerr.Of(ctx, err)
	}
	return s.conn != nil, nil
}

// beginTx is begin for a transaction. That is an operation if the begin may be deferred, or if a
// setting of the *sql.DB waits for a transaction.
func (s *shortWay) beginTx(ctx context.Context, c *checkout) (ok bool, err error) {
	if c.refusal != nil || c.source.config.LazyBegin || c.Bound() || ctxsettings.Used() || c.source.pool.Settings().WaitsForTx() {
		return false, nil
	}
	s.c = c
	s.conn, err = c.Borrow(ctx, &textBegin, true)
	if err != nil {
		return true, ctxerr.Of(ctx, err)
	}
	return s.conn != nil, nil
}

// exec executes the statement.
func (s *shortWay) exec(ctx context.Context) (driver.Result, error) {
	r := s.conn
	if !r.CanExec() || !r.SendsAsItIs(s.text.Query, s.args) {
		op := s.operation(executing)
		return op.resultOf(op.do(ctx))
	}
	returned := false
	defer func() {
		if !returned {
			s.panicked(executing)
		}
	}()
	res, err := r.ExecText(ctx, s.text.Query, s.text.Effect, s.args)
	returned = true
	if err != nil {
		op := s.operation(executing)
		return op.resultOf(op.judge(ctx, err))
	}
	c := s.c
	if s.text.Effect == dialects.Writes {
		c.wrote()
	}
	c.Settle(r)
	c.endEarly()
	return res, nil
}

// query runs the statement.
func (s *shortWay) query(ctx context.Context) (driver.Rows, error) {
	r := s.conn
	if !r.CanQuery() || !r.SendsAsItIs(s.text.Query, s.args) {
		op := s.operation(querying)
		return op.rowsOf(op.do(ctx))
	}
	returned := false
	defer func() {
		if !returned {
			s.panicked(querying)
		}
	}()
	opened, columns, err := r.QueryText(ctx, s.text.Query, s.text.Effect, s.args)
	returned = true
	if err != nil {
		op := s.operation(querying)
		return op.rowsOf(op.judge(ctx, err))
	}
	c := s.c
	if s.text.Effect == dialects.Writes {
		c.wrote()
	}
	rows := c.newRows(columns)
	c.OpenText(&rows.Rows, r, opened, s.text.Query)
	c.Settle(r)
	return rows.handedOut(), nil
}

// tx begins the transaction.
func (s *shortWay) tx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c, r := s.c, s.conn
	returned := false
	defer func() {
		if !returned {
			s.panicked(beginning)
		}
	}()
	t := newTx(ctx, c, opts, r)
	err := t.beginOn(ctx, r)
	returned = true
	if err != nil {
		op := s.operation(beginning)
		op.opts = opts
		return op.txOf(op.judge(ctx, err))
	}
	t.Began()
	c.SettleTx(r)
	return t, nil
}

// operation makes the statement an operation that goes on with the connection.
func (s *shortWay) operation(kind kind) *operation {
	op := &operation{c: s.c, kind: kind, known: s.text, started: true, kept: kind != executing}
	if kind == beginning {
		op.Begins, op.TextAt = true, &textBegin
	} else {
		op.Text, op.Args, op.Effect, op.TextAt = s.text.Query, s.args, s.text.Effect, &s.text.Query
	}
	op.Continue(s.conn)
	op.calls = s.conn.Calls()
	return op
}

// panicked ends what a panic of the driver has left.
func (s *shortWay) panicked(kind kind) {
	op := s.operation(kind)
	op.calls-- // the call that has panicked
	op.done()
}

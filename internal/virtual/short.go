package virtual

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// shortWay is a call of database/sql that has no task, succeeds at once, and leaves nothing behind
// but data: nearly every call of a program. Whatever else may happen to a call is an operation's,
// which takes over at any point: before anything was done, when the connection is there, or with the
// driver's error. docs/adr/0022-the-short-way-of-a-statement.md says what each step is for, and what it costs.
type shortWay struct {
	session.Statement
	c       *checkout
	conn    *binding.Conn // lent and locked
	text    *textcache.Text
	known   bool  // text was met lately
	virtual *text // the statement to execute; nil: the text is sent as it is

	// As in operation.
	kept, converting, converted bool
	calls                       int
}

// begin finds the connection for a text, or for the virtual statement v, which has it. ok is false
// if nothing was done, and the call is an operation from the beginning.
func (s *shortWay) begin(ctx context.Context, c *checkout, v *text, query string, args []driver.NamedValue) (ok bool, err error) {
	s.text, s.known = c.look(query)
	known := s.text
	if !s.known || c.refusal != nil || ctxsettings.Used() || !session.LeavesNothing(known.Effect) {
		return false, nil
	}
	s.c, s.virtual = c, v
	s.Text, s.Effect, s.Args = query, known.Effect, args
	if c.Bound() {
		s.conn, err = c.Again(ctx, &known.Query)
	} else {
		s.conn, err = c.Borrow(ctx, &known.Query, false)
	}
	return s.begun(ctx, err)
}

func (s *shortWay) begun(ctx context.Context, err error) (ok bool, _ error) {
	if err != nil {
		return true, ctxerr.Of(ctx, err)
	}
	if s.conn == nil {
		return false, nil
	}
	s.calls = s.conn.Calls()
	return true, nil
}

// ready reports whether the driver can be called at once: the statement is prepared already or is
// sent as it is, and its arguments need none of the program's code.
func (s *shortWay) ready(ctx context.Context, can bool) bool {
	r, v := s.conn, s.virtual
	if v == nil {
		return can && r.SendsAsItIs(s.Text, s.Args)
	}
	if v.owner != nil || v.renamed < s.c.renamed || v.prepared && r.Traits().PreparedAges ||
		ctx.Err() != nil || !driverconn.AllPlain(s.Args) {
		return false
	}
	s.Prepared = r.Kept(s.Text, v.generation)
	return s.Prepared != nil
}

// convert converts the arguments for the statement that is prepared, if there is one. fits is false if
// that statement does not take arguments of these types.
func (s *shortWay) convert() (fits bool, err error) {
	if s.Prepared == nil {
		return true, nil
	}
	r := s.conn
	s.c.source.report.StmtHits.Add(1)
	s.converting = true
	if err = r.Convert(&s.Statement, s.kept); err != nil {
		return false, err
	}
	s.converting, s.converted = false, true
	if fits = r.Fits(&s.Statement); !fits {
		r.Statements().Done(s.Prepared)
		s.Prepared = nil
	}
	return fits, nil
}

// exec executes the statement.
func (s *shortWay) exec(ctx context.Context) (driver.Result, error) {
	r := s.conn
	returned := false
	defer func() {
		if !returned {
			s.operation(executing).done() // after a panic of the driver, or an error of convert
		}
	}()
	ready := s.ready(ctx, r.CanExec())
	if ready {
		var err error
		if ready, err = s.convert(); err != nil {
			return nil, err
		}
	}
	if !ready {
		returned = true
		op := s.operation(executing)
		return op.resultOf(op.do(ctx))
	}
	res, err := r.Exec(ctx, &s.Statement)
	returned = true
	if err != nil {
		op := s.operation(executing)
		return op.resultOf(op.judge(ctx, err))
	}
	s.settle()
	s.c.Settle(r)
	s.c.endEarly()
	return res, nil
}

// query runs the statement.
func (s *shortWay) query(ctx context.Context) (driver.Rows, error) {
	c, r := s.c, s.conn
	returned := false
	defer func() {
		if !returned {
			s.operation(querying).done() // as in exec
		}
	}()
	ready := s.ready(ctx, r.CanQuery())
	if ready {
		var err error
		if ready, err = s.convert(); err != nil {
			return nil, err
		}
	}
	if !ready {
		returned = true
		op := s.operation(querying)
		return op.rowsOf(op.do(ctx))
	}
	opened, columns, err := r.Query(ctx, &s.Statement)
	returned = true
	if err != nil {
		op := s.operation(querying)
		return op.rowsOf(op.judge(ctx, err))
	}
	if s.Prepared != nil {
		s.Prepared.Open++
	}
	s.settle()
	rows := c.newRows(columns)
	c.OpenOwn(&rows.Rows, r, opened, &s.Statement)
	c.Settle(r)
	return rows.handedOut(), nil
}

// settle follows a statement that has succeeded.
func (s *shortWay) settle() {
	if s.Prepared != nil {
		s.conn.Statements().Done(s.Prepared)
	}
	if s.Effect == dialects.Writes {
		s.c.wrote()
	}
}

// beginTx is begin for a transaction. That is an operation if the begin may be deferred, or if a
// setting of the *sql.DB waits for a transaction.
func (s *shortWay) beginTx(ctx context.Context, c *checkout) (ok bool, err error) {
	if c.refusal != nil || c.source.config.LazyBegin || c.Bound() || ctxsettings.Used() || c.source.pool.Settings().WaitsForTx() {
		return false, nil
	}
	s.c, s.kept = c, true
	s.conn, err = c.Borrow(ctx, &textBegin, true)
	return s.begun(ctx, err)
}

// tx begins the transaction.
func (s *shortWay) tx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c, r := s.c, s.conn
	returned := false
	defer func() {
		if !returned {
			s.operation(beginning).done() // the driver has panicked
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

// operation makes the call an operation that goes on with the connection.
func (s *shortWay) operation(kind kind) *operation {
	op := &operation{
		c: s.c, kind: kind, known: s.text, virtual: s.virtual, kept: s.kept,
		started: true, calls: s.calls, converting: s.converting, converted: s.converted,
	}
	op.Statement = s.Statement
	if kind == beginning {
		op.Begins, op.TextAt = true, &textBegin
	} else {
		op.TextAt = &s.text.Query
	}
	op.Continue(s.conn)
	return op
}

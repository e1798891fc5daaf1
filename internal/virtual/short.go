package virtual

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// The short way is for a call of database/sql that has no task or a task without a connection, succeeds
// at once, and leaves only data behind: nearly every call of a program. An operation handles all other
// cases. The operation takes over at any point: before anything was done, when the connection is there,
// or with the driver's error. docs/adr/0022-the-short-way-of-a-statement.md has the steps and their
// costs.
//
// The functions here take many arguments, because arguments are in registers. A struct of the arguments
// would cost as much as a third of the short way.

// lend looks a text up, and lends and locks the connection for it. No connection and no error: nothing
// was done, and the call is an operation from the beginning.
func lend(ctx context.Context, c *conn, query string) (t *textcache.Text, r *connpool.Conn, err error) {
	t, known := c.look(query)
	if !known || c.refusal != nil || ctxsettings.Used() || !session.LeavesNothing(t.Effect) {
		return t, nil, nil
	}
	if c.Bound() {
		r, err = c.Again(ctx, &t.Query)
	} else {
		r, err = c.Borrow(ctx, &t.Query, false)
	}
	if err != nil {
		return t, nil, ctxerr.Of(ctx, err)
	}
	if r != nil {
		c.MakeWay(r, t.Effect)
	}
	return t, r, nil
}

// goOn returns the operation that takes over a call for which lend has lent r. calls: how many calls of
// the driver had not returned when r was lent.
func goOn(c *checkout, kind kind, r *connpool.Conn, v *text, t *textcache.Text, args []driver.NamedValue, calls int) *operation {
	op := &operation{c: c, kind: kind, known: t != nil, virtual: v, started: true, calls: calls}
	op.kept = kind != executing || v != nil && v.prepared
	if kind == beginning {
		op.Begins, op.TextAt = true, &textBegin
	} else {
		op.Text, op.Args, op.Effect, op.TextAt = t.Query, args, t.Effect, &t.Query
	}
	op.goesOn()
	return op
}

// execText executes a text that is sent as it is.
func execText(ctx context.Context, c *checkout, r *connpool.Conn, t *textcache.Text, args []driver.NamedValue) (driver.Result, error) {
	calls, returned := r.Calls(), false
	defer func() {
		if !returned {
			goOn(c, executing, r, nil, t, args, calls).done() // the driver has panicked
		}
	}()
	if !r.CanExec() || r.Rereads() || !r.SendsAsItIs(t.Query, args) {
		returned = true
		op := goOn(c, executing, r, nil, t, args, calls)
		return op.resultOf(op.do(ctx))
	}
	res, err := r.ExecText(ctx, t.Query, t.Effect, args)
	if r.Meter.TellsSlow() {
		r.CountAffected(res, err)
	}
	returned = true
	if err != nil {
		op := goOn(c, executing, r, nil, t, args, calls)
		return op.resultOf(op.judge(ctx, err))
	}
	succeeded(c, r, t)
	return res, nil
}

// queryText is execText for a query.
func queryText(ctx context.Context, c *checkout, r *connpool.Conn, t *textcache.Text, args []driver.NamedValue) (driver.Rows, error) {
	calls, returned := r.Calls(), false
	defer func() {
		if !returned {
			goOn(c, querying, r, nil, t, args, calls).done() // the driver has panicked
		}
	}()
	if !r.CanQuery() || r.Rereads() || !r.SendsAsItIs(t.Query, args) {
		returned = true
		op := goOn(c, querying, r, nil, t, args, calls)
		return op.rowsOf(op.do(ctx))
	}
	opened, columns, err := r.QueryText(ctx, t.Query, t.Effect, args)
	returned = true
	if err != nil {
		op := goOn(c, querying, r, nil, t, args, calls)
		return op.rowsOf(op.judge(ctx, err))
	}
	rows := c.newRows(columns)
	c.Open(&rows.Rows, opened, t.Query, nil, !c.Executed())
	succeeded(c, r, t)
	return rows.handedOut(), nil
}

// succeeded ends a statement that has succeeded, and unlocks r.
func succeeded(c *checkout, r *connpool.Conn, t *textcache.Text) {
	if t.Effect == dialects.Writes {
		c.wrote()
	}
	c.Settle(r)
	c.endEarly()
}

// keptCall is the execution of the virtual statement v by a driver's statement that is kept.
type keptCall struct {
	session.Statement
	c          *checkout
	r          *connpool.Conn
	v          *text
	t          *textcache.Text
	calls      int
	converting bool // a conversion has not returned, or has failed
	converted  bool
}

// prepare finds the driver's statement and converts the arguments for it. ok is false if an operation
// has to do this.
func (k *keptCall) prepare(ctx context.Context, kept bool) (ok bool, err error) {
	v, r := k.v, k.r
	if v.owner != nil || v.renamed < k.c.renamed || v.prepared && r.Traits().PreparedAges || ctx.Err() != nil || driverconn.MayRunCode(k.Args) {
		return false, nil
	}
	if k.Prepared = r.Kept(k.Text, v.generation); k.Prepared == nil {
		return false, nil
	}
	k.c.source.report.StmtHits.Add(1)
	k.converting = true
	if err = r.Convert(&k.Statement, kept); err != nil {
		return false, err
	}
	k.converting, k.converted = false, true
	if ok = r.Fits(&k.Statement); !ok {
		r.Statements().Done(k.Prepared)
		k.Prepared = nil
	}
	return ok, nil
}

// goOn returns the operation that takes over k.
func (k *keptCall) goOn(kind kind) *operation {
	op := goOn(k.c, kind, k.r, k.v, k.t, k.Args, k.calls)
	op.converting, op.converted, op.Prepared = k.converting, k.converted, k.Prepared
	return op
}

// exec executes k.
func (k *keptCall) exec(ctx context.Context) (driver.Result, error) {
	returned := false
	defer func() {
		if !returned {
			k.goOn(executing).done() // after a panic, or an error of the conversion
		}
	}()
	ok, err := k.prepare(ctx, k.v.prepared)
	if err != nil {
		return nil, err
	}
	if !ok {
		returned = true
		op := k.goOn(executing)
		return op.resultOf(op.do(ctx))
	}
	res, err := k.r.Exec(ctx, &k.Statement)
	if k.r.Meter.TellsSlow() {
		k.r.CountAffected(res, err)
	}
	returned = true
	if err != nil {
		op := k.goOn(executing)
		return op.resultOf(op.judge(ctx, err))
	}
	k.r.Statements().Done(k.Prepared)
	succeeded(k.c, k.r, k.t)
	return res, nil
}

// query is exec for a query.
func (k *keptCall) query(ctx context.Context) (driver.Rows, error) {
	returned := false
	defer func() {
		if !returned {
			k.goOn(querying).done() // as in exec
		}
	}()
	ok, err := k.prepare(ctx, true)
	if err != nil {
		return nil, err
	}
	if !ok {
		returned = true
		op := k.goOn(querying)
		return op.rowsOf(op.do(ctx))
	}
	opened, columns, err := k.r.Query(ctx, &k.Statement)
	returned = true
	if err != nil {
		op := k.goOn(querying)
		return op.rowsOf(op.judge(ctx, err))
	}
	k.Prepared.Open++
	k.r.Statements().Done(k.Prepared)
	rows := k.c.newRows(columns)
	k.c.Open(&rows.Rows, opened, k.Text, k.Prepared, !k.c.Executed())
	succeeded(k.c, k.r, k.t)
	return rows.handedOut(), nil
}

// lendForTx is lend for a transaction. It lends nothing, and an operation begins the transaction, if the
// begin may be deferred, or if a setting of the *sql.DB waits for a transaction.
func lendForTx(ctx context.Context, c *checkout) (*connpool.Conn, error) {
	if c.refusal != nil || c.source.config.LazyBegin || c.Bound() || ctxsettings.Used() || c.source.pool.Settings().WaitsForTx() {
		return nil, nil
	}
	r, err := c.Borrow(ctx, &textBegin, true)
	if err != nil {
		return nil, ctxerr.Of(ctx, err)
	}
	return r, nil
}

// beginTx begins a transaction.
func beginTx(ctx context.Context, c *checkout, r *connpool.Conn, opts driver.TxOptions) (driver.Tx, error) {
	calls, returned := r.Calls(), false
	defer func() {
		if !returned {
			goOn(c, beginning, r, nil, nil, nil, calls).done() // the driver has panicked
		}
	}()
	t := newTx(ctx, c, opts, r)
	err := t.beginOn(ctx, r)
	returned = true
	if err != nil {
		op := goOn(c, beginning, r, nil, nil, nil, calls)
		op.opts = opts
		return op.txOf(op.judge(ctx, err))
	}
	t.Began()
	c.SettleTx(r)
	t.reusable = true
	return txHandle{t, t.uses}, nil
}

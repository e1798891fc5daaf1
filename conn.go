package pooldriver

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// conn is a virtual connection: what database/sql pools. It costs an object,
// not a session; the real connection is attached at the first operation after
// database/sql has taken it, and given back when database/sql puts it back.
//
// It has every optional interface of database/sql/driver, and answers as
// database/sql would have, had it met the real driver itself.
type conn struct {
	connector *Connector

	// The checkout: the connection that is attached, nil before the first
	// operation; the task's binding that it belongs to, nil without a task;
	// and what is known since the connection was attached.
	real     *realConn
	bound    *binding
	scope    *task.Scope     // of InTx
	from     *task.Task      // whose context the statement's was derived from, beyond the task
	separate bool            // in a task, and keeping to itself: AmbientSeparate
	touched  bool            // something has happened on it: an operation cannot be moved to another one
	executed bool            // namely the execution of a statement
	open     *rows           // rows read under the lock, the last ones that it has opened
	spare    *rows           // closed, to be used again
	last     *textcache.Text // of the last operation: in a loop it is the next one's, too
	tx       *tx             // the innermost of its transactions that is open

	checkouts uint64  // so far
	fresh     int     // statements prepared in this checkout that are open
	aging     []*stmt // those with a generation
	closed    bool
	// refusal is what everything gets. errWrecked: the driver panicked, and database/sql
	// cannot end this checkout, or it had a state.
	refusal error
	lent    *loan // of Raw
	// sole: made by Driver.Open rather than by a Connector of the program's;
	// its connector ends with it.
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

// CheckNamedValue accepts everything: the real driver's conversion runs once
// the real connection is known (internal/driverconn).
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// ExecContext runs a statement, or returns driver.ErrSkip where the driver can
// only run prepared ones.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.prepares(args) {
		s := stmt{conn: c, query: query, plain: true}
		return s.ExecContext(ctx, args)
	}
	t := operation{returns: true}
	t.init(c, query, args)
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return nil, err
		}
		r := t.real
		if !r.conn.CanExec() {
			return nil, driver.ErrSkip
		}
		again, err := c.convert(&t, nil)
		if again {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := c.dropStale(ctx, &t, query); err != nil {
			return nil, err
		}
		r.recordStatement(&t, query)
		t.call()
		res, err := r.conn.Exec(ctx, query, t.args)
		again, err = c.finish(ctx, &t, err, true)
		if again {
			continue
		}
		if c.resends(&t, query) {
			continue
		}
		r.recordResult(t.effect, err)
		return res, err
	}
}

// QueryContext runs a query, or returns driver.ErrSkip where the driver can
// only run prepared ones.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.prepares(args) {
		s := stmt{conn: c, query: query, plain: true}
		return s.QueryContext(ctx, args)
	}
	var t operation
	t.init(c, query, args)
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return nil, err
		}
		r := t.real
		if !r.conn.CanQuery() {
			return nil, driver.ErrSkip
		}
		again, err := c.convert(&t, nil)
		if again {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := c.dropStale(ctx, &t, query); err != nil {
			return nil, err
		}
		r.recordStatement(&t, query)
		t.call()
		real, err := r.conn.Query(ctx, query, t.args)
		if err == nil {
			t.columns = columnsOf(real)
		}
		again, err = c.finish(ctx, &t, err, true)
		if again {
			continue
		}
		if c.resends(&t, query) {
			continue
		}
		r.recordResult(t.effect, err)
		if err != nil {
			return nil, err
		}
		return c.openRows(&t, real, nil), nil
	}
}

// dropStale closes the kept statement of a text that is about to be sent as it is, if no
// Prepare would get it any more. A driver that keeps statements by their texts (pgx)
// would take it instead of one of now.
func (c *conn) dropStale(ctx context.Context, t *operation, query string) error {
	r := t.real
	if !r.traits.PreparedAges || !r.stmts.Has(query) {
		return nil
	}
	t.closes(func() { r.stmts.DropStale(query, c.connector.generations.Of(query), r.currentSchema()) })
	return ofContext(ctx, ctx.Err()) // it may have taken its time
}

// resends lets a text that was sent as it is go once more if it was stale, and may: the
// driver keeps prepared statements of its own, and finds ours by their texts (pgx).
func (c *conn) resends(t *operation, query string) bool {
	if !c.renews(t, query) {
		return false
	}
	t.closes(func() { t.real.stmts.Drop(query) })
	c.unlock(t)
	return true
}

// convert converts the arguments for the driver, once; where that fails, or
// unlocks, it lets the statement s go. It may run the program's code (a
// Valuer), which may use the task: that is done without the lock, and again says
// that the connection has to be found again.
func (c *conn) convert(t *operation, s *stmtcache.Stmt) (again bool, err error) {
	if t.ready {
		return false, nil
	}
	var converter *driverconn.Converter
	switch checker := t.real.conn.Checker; {
	case s != nil:
		if converter = &s.Converter; !s.Asked {
			t.inside = true
			*converter = driverconn.ConverterOf(checker, s.Driver)
			t.inside, s.Asked = false, true
		}
	case t.real.traits.ArgsAsGiven || checker == nil && driverconn.AllPlain(t.args):
		t.ready = true
		return false, nil
	default:
		direct := driverconn.ConverterOf(checker, nil)
		converter = &direct
	}
	if t.locked && driverconn.MayRunCode(t.args) {
		if s != nil {
			t.real.stmts.Done(s)
		}
		c.unlock(t)
		t.args, err = converter.Convert(t.args)
		t.ready = err == nil
		return t.ready, err
	}
	// A driver, or a Valuer, may panic. Where database/sql then keeps the checkout for
	// ever, the connection has to end; where not, it has lost nothing.
	t.inside, t.loose = !t.returns, s
	t.args, err = converter.Convert(t.args)
	t.inside, t.loose = false, nil
	t.ready = err == nil
	if err != nil && s != nil {
		t.real.stmts.Done(s)
	}
	return false, err
}

// PrepareContext prepares on the checkout's real connection, unless the same
// text is prepared there already, so that a syntax error is reported now. The
// statement that it returns holds the text, not the connection.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	v := &stmt{conn: c, query: query}
	prepared := false
	defer func() {
		if !prepared { // an error, or a panic of the driver
			_ = v.Close()
		}
	}()
	var t operation
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return nil, err
		}
		if v.generation == 0 && t.real.traits.PreparedAges {
			v.generation = c.connector.generations.Open(query)
			c.aging = append(c.aging, v)
		}
		s, again, err := c.prepare(ctx, &t, v)
		if again {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.real.stmts.Done(s)
		prepared = true
		v.checkout = c.checkouts
		c.fresh++
		return v, nil
	}
}

// prepare finds the driver's statement on t's real connection, or makes it.
func (c *conn) prepare(ctx context.Context, t *operation, v *stmt) (s *stmtcache.Stmt, again bool, _ error) {
	schema := t.real.currentSchema()
	if s := t.real.stmts.Get(v.query, v.generation, schema); s != nil {
		c.connector.stats.stmtHits.Add(1)
		return s, false, ofContext(ctx, ctx.Err())
	}
	c.connector.stats.stmtMisses.Add(1)
	if t.real.traits.PreparingActs {
		effect, _ := c.connector.texts.Of(c.connector.dialect, v.query)
		t.real.recordEffect(effect)
	}
	t.call()
	si, err := t.real.conn.Prepare(ctx, v.query)
	if err != nil && c.connector.dialect.Diagnose(err)&dialects.TooManyPrepared != 0 {
		t.real.stmts.CloseAll()
		c.connector.giveStatementsBack()
		si, err = t.real.conn.Prepare(ctx, v.query)
	}
	again, err = c.finish(ctx, t, err, false)
	if again || err != nil {
		return nil, again, err
	}
	// One-off queries do not flush the cache: they have to come back first.
	s = t.real.stmts.Add(v.query, v.generation, si, !v.plain || t.known != nil)
	s.SchemaGeneration = schema
	return s, false, nil
}

// BeginTx begins a transaction on the checkout's real connection or, where one
// of its task is open there, a savepoint.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if tx, err := c.deferBegin(ctx, opts); tx != nil || err != nil {
		return tx, err
	}
	t := operation{begins: true}
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return nil, err
		}
		r := t.real
		if t.locked && r.inTx() && c.nests(r) {
			return c.beginInside(ctx, &t, opts)
		}
		begun := &tx{conn: c, owner: r, bound: c.bound, opts: opts, ctx: ctx}
		if c.connector.config.LazyBegin && c.betweenTxs(r) {
			if err := ctx.Err(); err != nil {
				return nil, ofContext(ctx, err) // as the driver would say
			}
			r.deferred, c.touched = begun, true
		} else {
			_, err := c.beginReal(ctx, &t, begun, false)
			again, err := c.finish(ctx, &t, err, false)
			if again {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		if t.locked {
			r.schemaGeneration++
			if before := r.seat.tx; before != nil {
				before.replaced = true
			}
			r.seat.tx, r.seat.warned, r.seat.since = begun, false, time.Now()
			if !c.separate {
				c.bound.lowerBarrier()
			}
			t.scope.Begun(begun)
		}
		return c.begun(begun), nil
	}
}

// Ping asks the driver, where it can be asked; where not, an attached
// connection is all that database/sql would have wanted.
func (c *conn) Ping(ctx context.Context) error {
	var t operation
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return err
		}
		t.call()
		err := t.real.conn.Ping(ctx)
		again, err := c.finish(ctx, &t, err, false)
		if !again {
			return err
		}
	}
}

// ResetSession is called when database/sql takes the connection again. There
// is nothing to do yet: the real driver's ResetSession runs on the real
// connection when one is taken from the pool.
func (c *conn) ResetSession(context.Context) error {
	if c.closed {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid is called when database/sql puts the connection back, and so ends
// the checkout. A virtual connection is fit for another one, whatever the real
// one is, with an exception. database/sql closes a statement under the lock of
// the connections it was prepared on. A task that goes on holding a real
// connection would wait for whoever uses the virtual one next, and he perhaps
// for the task: so it is not used again.
func (c *conn) IsValid() bool {
	b, fresh := c.bound, c.fresh
	c.detach()
	c.checkouts++
	c.fresh = 0
	return !c.closed && c.refusal == nil && !(fresh > 0 && b != nil && b.held.Load() > 0 && !b.ended.Load())
}

// Close ends the virtual connection. database/sql calls it on an attached one
// only after driver.ErrBadConn, so the real connection ends too.
func (c *conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.discard()
	// database/sql closes statements before their connection, but not those of
	// a transaction whose end failed with ErrBadConn.
	for len(c.aging) > 0 {
		_ = c.aging[0].Close()
	}
	if c.sole {
		return c.connector.Close()
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

package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Every call of database/sql that needs a session is an operation, and takes one way (do):
// find the session and lock it, begin what was deferred (both: start, in checkout.go),
// prepare, convert the arguments, call the driver, judge the outcome, record it, unlock.

// kind says what an operation does.
type kind uint8

const (
	executing kind = iota
	querying
	preparing
	beginning
	pinging
	lending // for Raw
)

// operation is one call of database/sql, with all its attempts.
type operation struct {
	kind              kind
	session.Statement                 // if it has a text
	text              *string         // Text, for Connector.Holders; nil: there is none
	known             *textcache.Text // what earlier operations have found of the text; nil: the text is new
	virtual           *text           // the statement to prepare; nil: the text is sent as it is
	opts              driver.TxOptions
	cargo             session.Cargo // what the text has to carry, of the present attempt

	// The results.
	result  driver.Result
	rows    *rows
	opened  driver.Rows // the driver's rows
	columns []string    // of the driver's rows
	tx      *transaction

	scope      *task.Scope // of its context, if that was looked up
	sharing    *task.Task  // it has set state that others of this task use; nil: it has not
	real       *realConn
	counted    *realConn          // whose meter has counted the operation
	said       dialects.Diagnosis // what the dialect said of the last error
	calls      int                // of the driver that had not returned when the operation got the lock
	renewals   int                // how often a stale statement was prepared again
	locked     bool               // the operation holds real's lock
	peeks      bool               // real's binding counts it in use.peeks
	measured   bool               // real's meter measures the operation
	started    bool               // start has found real
	retried    bool
	reclaimed  bool // the connection of its checkout was taken back for others
	converted  bool
	converting bool // a conversion has not returned
	kept       bool // database/sql keeps the checkout for ever if the driver panics
	first      bool // nothing was executed in the checkout before
}

// setText gives op a text of the program.
func (op *operation) setText(c *checkout, text string, args []driver.NamedValue) {
	op.Text, op.Args = text, args
	if last := c.last; last != nil && last.Query == text {
		op.Effect, op.known, op.text = last.Effect, last, &last.Query
		return
	}
	t, again := c.connector.texts.Of(c.connector.dialect, text)
	op.Effect, op.text, op.known = t.Effect, &t.Query, nil
	if again {
		op.known = t
	}
	c.last = op.known
}

// do runs op. Every operation goes through do.
func (c *checkout) do(ctx context.Context, op *operation) error {
	defer c.done(op)
	for {
		if err := c.start(ctx, op); err != nil {
			return err
		}
		again, err := c.attempt(ctx, op)
		if !again {
			return err
		}
		c.unlock(op)
	}
}

// attempt is the part of do under the session's lock. again: do tries once more, perhaps
// on another session.
func (c *checkout) attempt(ctx context.Context, op *operation) (again bool, err error) {
	if ctxsettings.Used() && op.kind != pinging {
		if again, err = c.useSettings(ctx, op); again || err != nil {
			return again, err
		}
	}
	switch op.kind {
	case pinging:
		return c.finishUnexecuted(ctx, op, op.real.Ping(ctx))
	case beginning:
		return c.begin(ctx, op)
	case lending:
		return false, c.lendTo(op)
	case preparing:
		if again, err = c.prepare(ctx, op); !again && err == nil {
			op.real.Statements().Done(op.Prepared)
		}
		return again, err
	}
	return c.run(ctx, op)
}

// run is attempt for a text that is executed.
func (c *checkout) run(ctx context.Context, op *operation) (again bool, err error) {
	if op.virtual != nil {
		if again, err = c.prepare(ctx, op); again || err != nil {
			return again, err
		}
	} else if op.kind == executing && !op.real.CanExec() || op.kind == querying && !op.real.CanQuery() {
		return false, driver.ErrSkip
	}
	if again, err = c.convert(op); again || err != nil {
		return again, err
	}
	if err := c.dropStale(ctx, op); err != nil {
		return false, err
	}
	if op.Prepared != nil && !op.real.Fits(&op.Statement) {
		op.real.Statements().Done(op.Prepared)
		return true, nil
	}
	return c.execute(ctx, op)
}

// prepare finds the driver's statement on op's session, or makes it.
func (c *checkout) prepare(ctx context.Context, op *operation) (again bool, err error) {
	r, v, cn := op.real, op.virtual, c.connector
	if op.kind == preparing {
		v.renamed = c.renamed
	} else if v.prepared && v.renamed < c.renamed {
		return false, errRenamed
	}
	if v.generation == 0 && v.prepared && r.Traits().PreparedAges {
		v.generation = cn.generations.Open(v.query)
		c.aging = append(c.aging, v)
	}
	if v.owner != nil {
		return c.prepareOwned(ctx, op)
	}
	if op.Prepared = r.Kept(v.query, v.generation); op.Prepared != nil {
		cn.report.StmtHits.Add(1)
		if err := ctx.Err(); err != nil {
			r.Statements().Done(op.Prepared)
			return false, ctxerr.Of(ctx, err)
		}
		return false, nil
	}
	cn.report.StmtMisses.Add(1)
	if r.Traits().PreparingActs {
		text, _ := cn.texts.Of(cn.dialect, v.query)
		r.RecordEffect(text.Effect)
	}
	// A query with arguments is kept when its text comes a second time: one-off queries do
	// not flush the cache.
	op.Prepared, err = r.Prepare(ctx, v.query, v.generation, v.prepared || op.known != nil)
	return c.finishUnexecuted(ctx, op, err)
}

// prepareOwned is prepare for a statement that is the program's.
func (c *checkout) prepareOwned(ctx context.Context, op *operation) (again bool, err error) {
	if op.Prepared = op.real.Statements().Owned(op.virtual.owner); op.Prepared != nil {
		return false, ctxerr.Of(ctx, ctx.Err())
	}
	op.Prepared, err = op.real.PrepareOwned(ctx, op.virtual.query, op.virtual.owner)
	return c.finishUnexecuted(ctx, op, err)
}

// errRenamed is the error of a statement whose text means something else by now.
var errRenamed = errors.New("pooldriver: the program prepared this statement before it changed the connection's database, SQL mode or character set; the server would execute it with what was in force then: prepare it again")

// convert converts the arguments for the driver, once. A conversion may run the program's
// code (a Valuer), and that code may use the task. Then convert gives the lock up first.
// again: the session has to be found again.
func (c *checkout) convert(op *operation) (again bool, err error) {
	r := op.real
	if op.converted || op.Prepared == nil && r.TakesArgsAsGiven(op.Args) {
		op.converted = true
		return false, nil
	}
	if !c.bound.isPrivate() && driverconn.MayRunCode(op.Args) {
		converter := r.Converter(op.Prepared)
		if op.Prepared != nil {
			r.Statements().Done(op.Prepared)
		}
		c.unlock(op)
		op.Args, err = converter.Convert(op.Args)
		op.converted = err == nil
		return op.converted, err
	}
	// A driver or a Valuer may panic. If database/sql then keeps the checkout for ever
	// (op.kept), the connection has to end. Otherwise the connection has lost nothing.
	op.converting = true
	err = r.Convert(&op.Statement, op.kept)
	op.converting = false
	op.converted = err == nil
	if err != nil && op.Prepared != nil {
		r.Statements().Done(op.Prepared)
	}
	return false, err
}

// dropStale closes the stale prepared statement of a text that is about to be sent as it
// is.
func (c *checkout) dropStale(ctx context.Context, op *operation) error {
	if op.Prepared != nil || !op.real.Traits().PreparedAges || !op.real.Statements().Has(op.Text) {
		return nil
	}
	op.real.DropStale(op.Text, c.connector.generations.Of(op.Text))
	return ctxerr.Of(ctx, ctx.Err()) // closing may have taken long
}

// execute calls the driver with the statement. It opens the virtual rows last: from then
// on others may take the connection from them.
func (c *checkout) execute(ctx context.Context, op *operation) (again bool, err error) {
	r := op.real
	c.recordSetting(op)
	switch err = r.LoadSettings(ctx, op.cargo); {
	case err != nil:
	case op.kind == executing:
		op.result, err = r.Exec(ctx, &op.Statement)
	default:
		op.opened, op.columns, err = r.Query(ctx, &op.Statement)
	}
	r.UnloadSettings(op.cargo, err)
	if again, err = c.finish(ctx, op, err); again {
		return true, err
	}
	opens := err == nil && op.kind == querying
	if st := op.Prepared; st != nil {
		if op.said&dialects.StaleStatement != 0 {
			r.Statements().MarkStale(st)
		}
		if opens {
			st.Open++
		}
		r.Statements().Done(st)
	}
	if c.renews(op) {
		if op.Prepared == nil {
			r.Drop(op.Text) // pgx keeps statements itself, and finds ours by their texts
		}
		return true, nil
	}
	r.RecordResult(op.Effect, err)
	if err != nil || op.Effect != dialects.Clean {
		err = c.ended(ctx, op, err)
	}
	if err == nil && opens {
		op.rows = c.openRows(op)
	}
	return false, err
}

// ended records what a statement that has run, and is not clean, means for the checkout and
// for the *sql.DB.
// It returns the error of the statement, or that of what the statement has left.
func (c *checkout) ended(ctx context.Context, op *operation, err error) error {
	if op.Effect == dialects.Writes && c.tx == nil && !c.bound.shares {
		c.connector.pool.Settings().TakeNextTx() // SQLite's autocommit has ended it
	}
	if err == nil && op.kind == executing {
		err = c.refuseLeft(ctx, op)
	}
	if err != nil {
		op.real.ForgetSetting()
		return err
	}
	if c.sharesState(op) {
		op.sharing = c.bound.task
	}
	if op.Effect&dialects.Renames != 0 {
		c.renamed++
	}
	return nil
}

// maxRenewals bounds how often a stale statement is prepared again. Each ALTER TABLE
// between the preparing and the execution makes the statement stale once more. On two busy
// processors, with an ALTER TABLE every 18 ms, 14 of 15,700 statements needed more than
// three renewals. After the last one the program gets the server's error.
const maxRenewals = 10

// renews reports whether op runs once more: its statement was stale, and may be prepared
// and executed again.
func (c *checkout) renews(op *operation) bool {
	if op.said&dialects.StaleStatement == 0 || op.renewals == maxRenewals || c.tx != nil || !op.real.MayRenew(&op.Statement) {
		return false
	}
	op.renewals++
	return true
}

// done is deferred around every operation. It unlocks the session.
//
// If the driver has panicked, done ends the connection. After some panics (in a query, in
// BeginTx) database/sql never gives the checkout back, and the pool would lose a place. In
// a transaction the connection stays: database/sql still rolls back on it. A *sql.Conn
// that had session state, or a transaction begun by hand, refuses further operations: on
// another connection they would mean something else.
func (c *checkout) done(op *operation) {
	r := op.real
	if op.converting && op.Prepared != nil {
		r.Statements().Done(op.Prepared)
	}
	if op.started && op.locked && r.Calls() > op.calls && c.tx == nil {
		// The task learns from the loss barrier what its main session has lost.
		told := c.bound.main.Load() == r
		if c.executed && !session.LeavesNothing(r.Effect()) && !told {
			c.refusal = errDriverPanicked
		}
		r.MarkUnusable()
		c.bound.standDown(c, r)
	}
	c.unlock(op)
	if op.sharing != nil {
		c.tellShared(op)
	}
	c.endEarly()
	if op.retried {
		c.connector.unattached.Add(-1)
	}
}

// goesOn reports whether op has had a connection before. Drain does not refuse such an
// operation.
func (op *operation) goesOn() bool { return op.retried || op.reclaimed }

// unlock unlocks the session, if the operation holds its lock.
func (c *checkout) unlock(op *operation) {
	if !op.locked {
		return
	}
	op.locked = false
	r, b := op.real, c.bound
	if op.measured {
		op.measured = false
		r.Meter.EndOperation(r.pinnedBy())
	}
	// An operation that came too late may hold the lock of a session that has left the
	// binding.
	if c.real == r && !op.peeks && r.holder.Load() == b {
		if b.isPrivate() {
			r.Unlock()
			return
		}
		if r.settled(b.main.Load() == r) {
			r.use.moves()
			r.Unlock()
			return
		}
	}
	peeks := op.peeks
	op.peeks = false
	b.release(r, peeks)
}

// finish judges an execution. again: do tries once more. Otherwise the operation returns
// the error.
func (c *checkout) finish(ctx context.Context, op *operation, err error) (again bool, _ error) {
	op.said = 0
	if err == driver.ErrSkip {
		return false, err
	}
	op.first, c.executed = !c.executed, true
	c.ran(op.real)
	if err != nil {
		return c.failed(ctx, op, err, true)
	}
	c.touched = true
	return false, nil
}

// finishUnexecuted is finish after a call of the driver that changes no data.
func (c *checkout) finishUnexecuted(ctx context.Context, op *operation, err error) (again bool, _ error) {
	op.said = 0
	if err != nil && err != driver.ErrSkip {
		return c.failed(ctx, op, err, false)
	}
	c.touched = c.touched || err == nil
	return false, err
}

// failed is finish where the driver has returned an error.
func (c *checkout) failed(ctx context.Context, op *operation, err error, executes bool) (again bool, _ error) {
	r, cn := op.real, c.connector
	op.said = r.Diagnose(err)
	o := c.outcomeOf(op, err, executes)
	o.expired = ctx.Err() != nil
	c.touched = true
	if o.badConn || o.lost {
		r.MarkUnusable()
	} else if !c.bound.isPrivate() && r.HasTx() && r.EndsTx(op.said, op.Effect) {
		// This may be wrong: SQLite's transaction stays open if a write was interrupted
		// before it began. inspect asks the session when the connection comes back.
		r.TxEnded()
	}
	if o.badConn && o.first && o.trusted {
		// The check of idle connections did not find that this one was dead. What ended
		// this one may have ended others, which the check may not find either.
		r.FlushGeneration()
	}
	v := judge(o)
	switch {
	case v.retry:
		cn.report.Retries.Add(1)
		op.retried = true
		cn.unattached.Add(1) // until done
		c.moveOn(op)
		return true, nil
	case v.unclear:
		err = ctxerr.Unclear(ctxerr.ErrUnclear, err)
	case o.badConn && o.expired:
		err = ctxerr.WithEnd(ctx, err) // some drivers close a connection when a context ends
	}
	err = ctxerr.Of(ctx, err)
	if !c.bound.isPrivate() && r.Severed() { // by its task's end
		err = c.bound.task.WithEnd(err)
	}
	return false, err
}

// outcomeOf collects what judge decides on.
func (c *checkout) outcomeOf(op *operation, err error, executes bool) outcome {
	r := op.real
	unsent, counted := r.Unsent()
	return outcome{
		badConn:  errors.Is(err, driver.ErrBadConn),
		lost:     r.TxStatus() == dialects.TxLost,
		claims:   executes && ctxerr.SaysSafe(err),
		executes: executes,
		unsent:   unsent,
		wasIdle:  op.said&dialects.WasIdle != 0,
		trusted:  !counted && !r.Traits().BadConnUnsure,
		first:    !c.touched && c.bound.users(r) == 1 && !r.use.pin.KeepsTask(),
		retried:  op.retried,
	}
}

// moveOn takes c off a dead session, so that op can try another one. If c's transaction
// was deferred and has not begun, it is deferred again.
func (c *checkout) moveOn(op *operation) {
	b, deferred := c.bound, c.tx
	b.standDown(c, op.real)
	c.unlock(op)
	if b.isPrivate() {
		c.unbind()
		if deferred != nil {
			deferred.again()
			c.tx = deferred
		}
	}
}

// How operations and checkouts are measured: internal/usage. Every call of a meter is made
// under the lock of its connection.

// pins reports whether an operation is known to hold its connection beyond itself.
func (op *operation) pins() bool {
	return op.kind == beginning || op.kind == lending || session.NeedsSession(op.Effect)
}

// measure begins the measuring of an attempt of op on a connection that was attached
// before. Its unlock ends it.
func (op *operation) measure() {
	r := op.real
	op.measured = true
	r.Meter.BeginOperation(op.text, op.kind == beginning || r.Begun(), op.counted == r)
	op.counted = r
}

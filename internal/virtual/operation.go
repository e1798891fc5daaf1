package virtual

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Every call of database/sql that needs a session is an operation, and takes one way (do):
// find the session, lock it and begin what was deferred (start does this), prepare, convert the
// arguments, call the driver, judge the outcome, record it, unlock.

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
	c    *checkout
	kind kind
	binding.Want
	known   bool  // the text was met lately
	virtual *text // the statement to prepare; nil: the text is sent as it is
	opts    driver.TxOptions
	cargo   session.Cargo // the settings that the text carries in the present attempt

	// The results.
	result  driver.Result
	rows    *rows
	opened  driver.Rows // the driver's rows
	columns []string    // of the driver's rows
	tx      *transaction

	sharing    *task.Task         // the task, if op has set state that other checkouts of the task use; else nil
	said       dialects.Diagnosis // the dialect's diagnosis of the last error
	calls      int                // how many calls of the driver had not returned when the operation got the lock
	renewals   int                // how often a stale statement was prepared again
	started    bool               // start has found the connection
	converted  bool
	converting bool // a conversion has not returned
	kept       bool // database/sql keeps the checkout for ever if the driver panics
	first      bool // nothing was executed in the checkout before
}

// setText gives op a text of the program, which lend has looked up.
func (op *operation) setText(t *textcache.Text, args []driver.NamedValue) {
	op.Text, op.Args, op.Effect, op.TextAt = t.Query, args, t.Effect, &t.Query
	op.known = t == op.c.last
}

// goesOn makes op an operation that goes on where the short way has stopped.
func (op *operation) goesOn() { op.c.Continue(&op.Want) }

// sharesSession reports whether another checkout uses op's session.
func (op *operation) sharesSession() bool { return op.c.SharesState(&op.Want) }

// do runs op. Every operation goes through do.
func (op *operation) do(ctx context.Context) error {
	defer op.done()
	for {
		if !op.started { // the short way may have done it
			if err := op.start(ctx); err != nil {
				return err
			}
		}
		again, err := op.attempt(ctx)
		if !again {
			return err
		}
		op.c.Unlock(&op.Want)
		op.started = false
	}
}

// judge goes on with an operation that the driver has answered with err.
func (op *operation) judge(ctx context.Context, err error) error {
	again, err := op.judgeOnce(ctx, err)
	if again {
		return op.do(ctx)
	}
	return err
}

func (op *operation) judgeOnce(ctx context.Context, err error) (again bool, _ error) {
	defer func() {
		if !again {
			op.done()
		}
	}()
	if op.kind == beginning {
		again, err = op.finishUnexecuted(ctx, err)
	} else {
		again, err = op.answered(ctx, err)
	}
	if again {
		op.c.Unlock(&op.Want)
		op.started = false
	}
	return again, err
}

// txOf returns the results of BeginTx, for an operation that has ended with err.
func (op *operation) txOf(err error) (driver.Tx, error) {
	if err != nil {
		return nil, err
	}
	return op.tx, nil
}

// resultOf returns the results of Exec, for an operation that has ended with err.
func (op *operation) resultOf(err error) (driver.Result, error) {
	if err != nil {
		return nil, err
	}
	return op.result, nil
}

// rowsOf returns the results of Query, for an operation that has ended with err.
func (op *operation) rowsOf(err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	return op.rows.handedOut(), nil
}

// attempt is the part of do under the session's lock. again: do tries once more, perhaps
// on another session.
func (op *operation) attempt(ctx context.Context) (again bool, err error) {
	if ctxsettings.Used() && op.kind != pinging {
		if again, err = op.useSettings(ctx); again || err != nil {
			return again, err
		}
	}
	switch op.kind {
	case pinging:
		return op.finishUnexecuted(ctx, op.Conn.Ping(ctx))
	case beginning:
		return op.begin(ctx)
	case lending:
		return false, op.lend()
	case preparing:
		if again, err = op.prepare(ctx); !again && err == nil {
			op.Conn.Statements().Done(op.Prepared)
		}
		return again, err
	}
	return op.run(ctx)
}

// run is attempt for a text that is executed.
func (op *operation) run(ctx context.Context) (again bool, err error) {
	if op.virtual != nil && !op.readAnew() {
		if again, err = op.prepare(ctx); again || err != nil {
			return again, err
		}
	} else if op.kind == executing && !op.Conn.CanExec() || op.kind == querying && !op.Conn.CanQuery() {
		return false, driver.ErrSkip
	}
	if again, err = op.convert(); again || err != nil {
		return again, err
	}
	if err := op.dropStale(ctx); err != nil {
		return false, err
	}
	if op.Prepared != nil && !op.Conn.Fits(&op.Statement) {
		op.Conn.Statements().Done(op.Prepared)
		return true, nil
	}
	return op.execute(ctx)
}

// readAnew reports whether op executes its virtual statement as a text, so that the server reads the
// text by the settings of op's context.
func (op *operation) readAnew() bool {
	if !ctxsettings.Used() || !op.Conn.ReadBySettings() {
		return false
	}
	return op.kind == executing && op.Conn.CanExec() || op.kind == querying && op.Conn.CanQuery()
}

// prepare finds the driver's statement on op's session, or makes it.
func (op *operation) prepare(ctx context.Context) (again bool, err error) {
	c := op.c
	r, v := op.Conn, op.virtual
	if op.kind == preparing {
		v.renamed = c.renamed
	} else if v.prepared && v.renamed < c.renamed {
		return false, errRenamed
	}
	if v.generation == 0 && v.prepared && r.Traits().PreparedAges {
		v.generation = c.source.Generations.Open(v.query)
		c.aging = append(c.aging, v)
	}
	if v.owner != nil {
		return op.prepareOwned(ctx)
	}
	keep := v.prepared || op.known
	if ctxsettings.Used() && r.ReadBySettings() {
		keep = false
		r.Drop(v.query) // the driver would find a kept statement
	}
	if op.Prepared = r.Kept(v.query, v.generation); op.Prepared != nil {
		c.source.report.StmtHits.Add(1)
		if err := ctx.Err(); err != nil {
			r.Statements().Done(op.Prepared)
			return false, ctxerr.Of(ctx, err)
		}
		return false, nil
	}
	c.source.report.StmtMisses.Add(1)
	if r.Traits().PreparingActs {
		text, _ := c.source.texts.Of(c.source.config.Dialect, v.query)
		r.RecordEffect(text.Effect)
	}
	// A query with arguments is kept when its text comes a second time: one-off queries do
	// not flush the cache.
	op.Prepared, err = r.Prepare(ctx, v.query, v.generation, keep)
	return op.finishUnexecuted(ctx, err)
}

// prepareOwned is prepare for a statement that the program owns.
func (op *operation) prepareOwned(ctx context.Context) (again bool, err error) {
	if op.Prepared = op.Conn.Statements().Owned(op.virtual.owner); op.Prepared != nil {
		return false, ctxerr.Of(ctx, ctx.Err())
	}
	op.Prepared, err = op.Conn.PrepareOwned(ctx, op.virtual.query, op.virtual.owner)
	return op.finishUnexecuted(ctx, err)
}

// errRenamed is the error of a prepared statement whose text has another meaning by now.
var errRenamed = errors.New("pooldriver: the program prepared this statement before it changed the connection's database, SQL mode or character set; the server would execute the statement with the old values; prepare it again")

// convert converts the arguments for the driver, once. A conversion may run the program's
// code (a Valuer), and that code may use the task. Then convert gives the lock up first.
// again: the session has to be found again.
func (op *operation) convert() (again bool, err error) {
	c := op.c
	r := op.Conn
	if op.converted || op.Prepared == nil && r.TakesArgsAsGiven(op.Args) {
		op.converted = true
		return false, nil
	}
	if c.InTask() && driverconn.MayRunCode(op.Args) {
		converter := r.Converter(op.Prepared)
		if op.Prepared != nil {
			r.Statements().Done(op.Prepared)
		}
		c.Unlock(&op.Want)
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
// is. If the server is to read the text by the settings of op's context, every prepared statement
// of the text is stale.
func (op *operation) dropStale(ctx context.Context) error {
	r := op.Conn
	if op.Prepared != nil || !r.Traits().PreparedAges || !r.Statements().Has(op.Text) {
		return nil
	}
	if r.ReadBySettings() {
		r.Drop(op.Text)
	} else {
		r.DropStale(op.Text, op.c.source.Generations.Of(op.Text))
	}
	return ctxerr.Of(ctx, ctx.Err()) // closing may have taken long
}

// execute calls the driver with the statement. It opens the virtual rows last: as soon as the rows are
// open, others may take the rows' connection.
func (op *operation) execute(ctx context.Context) (again bool, err error) {
	r := op.Conn
	op.c.MakeWay(r, op.Effect)
	if err = op.recordSetting(ctx); err == nil {
		err = r.LoadSettings(ctx, op.cargo)
	}
	switch {
	case err != nil:
	case op.kind == executing:
		op.result, err = r.Exec(ctx, &op.Statement)
		r.CountAffected(op.result, err)
	default:
		op.opened, op.columns, err = r.Query(ctx, &op.Statement)
	}
	r.UnloadSettings(op.cargo, err)
	return op.answered(ctx, err)
}

// answered is the part of execute that follows the driver's answer.
func (op *operation) answered(ctx context.Context, err error) (again bool, _ error) {
	r := op.Conn
	if again, err = op.finish(ctx, err); again {
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
	if op.renews() {
		if op.Prepared == nil {
			r.Drop(op.Text) // pgx keeps statements itself, and finds ours by their texts
		}
		return true, nil
	}
	r.RecordResult(op.Effect, err)
	if err != nil || op.Effect != dialects.Clean {
		op.ended(err)
	}
	if err == nil && opens {
		op.rows = op.c.openRows(op.opened, &op.Want, op.first, op.columns)
	}
	return false, err
}

// ended records the effects of a statement that has run, and is not clean, on the checkout and on
// the *sql.DB. err is the error of the statement.
func (op *operation) ended(err error) {
	c := op.c
	if op.Effect == dialects.Writes {
		c.wrote()
	}
	if err != nil {
		op.Conn.ForgetSetting()
		return
	}
	if op.sharesState() {
		op.sharing = c.Task()
	}
	if op.Effect&dialects.Renames != 0 {
		c.renamed++
	}
}

// maxRenewals bounds how often a stale statement is prepared again. Each ALTER TABLE between the
// prepare and the execution makes the statement stale once more. On two busy
// processors, with an ALTER TABLE every 18 ms, 14 of 15,700 statements needed more than
// three renewals. After the last one the program gets the server's error.
const maxRenewals = 10

// renews reports whether op runs once more: its statement was stale, and may be prepared
// and executed again.
func (op *operation) renews() bool {
	if op.said&dialects.StaleStatement == 0 || op.renewals == maxRenewals || op.c.HasTx() || !op.Conn.MayRenew(&op.Statement) {
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
func (op *operation) done() {
	c := op.c
	r := op.Conn
	if op.converting && op.Prepared != nil {
		r.Statements().Done(op.Prepared)
	}
	if op.started && op.Locked() && r.Calls() > op.calls && !c.HasTx() {
		// The task learns from the loss barrier what its main session has lost.
		told := c.OnMain(&op.Want)
		if c.Executed() && !session.LeavesNothing(r.Effect()) && !told {
			c.refuse(errDriverPanicked)
		}
		r.MarkUnusable()
		c.StandDown(&op.Want)
	}
	c.Done(&op.Want)
	if op.sharing != nil {
		op.tellShared()
	}
	c.endEarly()
}

// finish judges an execution. again: do tries once more. Otherwise the operation returns
// the error.
func (op *operation) finish(ctx context.Context, err error) (again bool, _ error) {
	c := op.c
	op.said = 0
	if err == driver.ErrSkip {
		return false, err
	}
	op.first = !c.Executed()
	c.Ran(&op.Want)
	if err != nil {
		return op.failed(ctx, err, true)
	}
	c.SetTouched(true)
	return false, nil
}

// finishUnexecuted is finish after a call of the driver that changes no data.
func (op *operation) finishUnexecuted(ctx context.Context, err error) (again bool, _ error) {
	c := op.c
	op.said = 0
	if err != nil && err != driver.ErrSkip {
		return op.failed(ctx, err, false)
	}
	c.SetTouched(c.Touched() || err == nil)
	return false, err
}

// start finds the session for the operation, locks it, and begins a deferred transaction.
func (op *operation) start(ctx context.Context) error {
	c := op.c
	if c.refusal != nil {
		return c.refusal
	}
	for {
		op.started = false
		if err := c.Reach(ctx, &op.Want); err != nil {
			return ctxerr.Of(ctx, err)
		}
		op.started, op.calls = true, op.Conn.Calls()
		if c.WasTakenBack() && op.asksBack() {
			return errTakenBack
		}
		op.Measure()
		if op.Conn.Deferred() == nil {
			return nil
		}
		if again, err := op.beginDeferred(ctx); !again {
			return ctxerr.Of(ctx, err)
		}
	}
}

// errTakenBack is the error of a text that asks for state which the last statement has left on its
// connection, if that connection was taken back.
var errTakenBack = errors.New("pooldriver: this statement asks for what the statement before it has left on its connection, but others waited for the connection and got it while the rows were open; read the rows to their end first, use a transaction, or raise pool_max_conns")

// asksBack reports whether op's text asks for state which the last statement has left on its connection.
func (op *operation) asksBack() bool {
	judge, ok := op.c.source.config.Dialect.(dialects.ReadJudge)
	return ok && op.TextAt != nil && judge.AsksBack(op.Text)
}

// lend lends the session to a function of Raw. From here on the checkout refuses every
// operation.
func (op *operation) lend() error {
	l, err := binding.Lend(&op.c.Checkout, &op.Want)
	if err != nil {
		return err
	}
	op.c.lend(&Loan{Loan: l, checkout: op.c})
	return nil
}

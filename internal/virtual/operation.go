package virtual

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Every call of database/sql that needs a session is an operation, and takes one way (do):
// find the session and lock it (internal/binding), begin what was deferred, run the statement
// (internal/session), judge the outcome, record it, unlock.

// kind says what an operation does.
type kind uint8

const (
	over kind = iota // nothing: the last operation has ended
	executing
	querying
	preparing
	beginning
	lending // lends the connection to a function of Raw
	// The rest sends no statement of the program, and needs no settings.
	pinging
	attaching // finds the session, and does nothing there
)

// rare is what few operations have: the end of each operation clears it all.
type rare struct {
	// Of package direct.
	lifetime context.Context // the context that bounds the transaction which begins
	nested   bool            // a transaction that begins is a savepoint, also without a task
}

// operation is one call of database/sql, with all its attempts. A virtual connection has one, because
// database/sql makes one call at a time. On the stack it would double the memory of a goroutine that
// waits for a connection.
type operation struct {
	c    *checkout
	kind kind
	binding.Want
	virtual *text // the statement to prepare; nil: the text is sent as it is
	opts    driver.TxOptions

	// The results, beside those of the statement.
	rows *rows
	tx   *transaction

	begins  bool            // it carries a deferred BEGIN
	paced   *textcache.Pace // the text whose run is measured; nil: none
	sharing *task.Task      // the task, if op has set state that other checkouts of the task use; else nil
	calls   int             // how many calls of the driver had not returned when the operation got the lock
	started bool            // Reach has found the connection
	cut     bool            // the operation has lost its connection
	rare    *rare           // what few operations need; nil for most
}

// setText makes op one that executes its text, or its virtual statement, which has this text.
func (op *operation) setText() {
	t, again := op.c.look(op.Text)
	op.Text, op.Effect, op.TextAt = t.Query, t.Effect, &t.Query
	op.Queries = op.kind == querying
	// database/sql keeps the checkout for ever if the driver panics.
	op.Fatal = op.Queries
	if op.Queries && op.c.source.config.Pipeline > 0 {
		op.paced, op.Pace = paceOf(op, t)
	}
	if v := op.virtual; v != nil {
		// A query with arguments is kept when its text comes a second time: one-off queries do
		// not flush the cache.
		op.Keep, op.Fatal = again || v.prepared, op.Queries || v.prepared
	}
}

// do runs op. Every operation goes through do.
func (op *operation) do(ctx context.Context) error {
	c := op.c
	if c.refusal != nil {
		return c.refusal
	}
	defer op.done()
	if c.watcher != nil && !enter(ctx, op) {
		return c.refused
	}
	for {
		op.started = false
		if c.to != nil {
			if err := routeOp(ctx, op); err != nil {
				return ctxerr.Of(ctx, err)
			}
			if c.on != nil {
				c.source.engine.Visit(&op.Want)
			}
		}
		again, err := op.try(ctx)
		if again {
			continue
		}
		if c.to != nil {
			routeEnded(c.to, err)
		}
		return err
	}
}

// try is one try of do, on the server that is chosen. again: do tries once more.
func (op *operation) try(ctx context.Context) (again bool, err error) {
	c := op.c
	if err := c.held.Reach(ctx, &op.Want); err != nil {
		return unreached(ctx, op, err)
	}
	if op.Answer != nil {
		return takeAnswer(ctx, op)
	}
	again, err = op.attempt(ctx)
	if again || c.on != nil && elsewhere(ctx, op, err) {
		c.held.Unlock(&op.Want)
		return true, nil
	}
	return false, err
}

// unreached is called with the error of an operation that has got no connection. again: it tries once more.
func unreached(ctx context.Context, op *operation, err error) (again bool, _ error) {
	if elsewhere(ctx, op, err) {
		return true, nil
	}
	if w := op.c.watcher; w != nil {
		if err = w.Waits(ctx, err); err == nil {
			return true, nil
		}
	}
	return false, ctxerr.Of(ctx, err)
}

// goTo makes to the server of the checkout; nil: the primary.
func goTo(c *checkout, to *replica.Replica) {
	if c.on == to {
		return
	}
	c.source.Replicas.Move(&c.held, c.on, to)
	c.on = to
}

// takeAnswer ends an operation whose answer another one's connection has given. again: a replica has refused it, or its answer is older
// than the context has seen.
func takeAnswer(ctx context.Context, op *operation) (again bool, err error) {
	c := op.c
	if c.on != nil && (elsewhere(ctx, op, op.Answer.Err) || op.Answer.Err == nil && !shows(op, op.Answer.Era)) {
		op.Answer.Drop()
		op.Answer = nil
		return true, nil
	}
	r := c.newRows(nil)
	if err := c.held.TakeAnswer(&r.held, op.Answer); err != nil {
		return false, ctxerr.Of(ctx, err)
	}
	op.rows = r
	return false, nil
}

// errOf, txOf, resultOf and rowsOf return the results of an operation that has ended with err. The
// virtual connection keeps nothing of the program's.
func (op *operation) errOf(err error) error {
	*op = operation{}
	return err
}

func (op *operation) txOf(err error) (driver.Tx, error) {
	t, scope := op.tx, op.Scope
	*op = operation{}
	if err != nil {
		return nil, err
	}
	return t.handedOut(scope), nil
}

//go:noinline
func (op *operation) resultOf(err error) (driver.Result, error) {
	res := op.Result
	*op = operation{}
	if err != nil {
		return nil, err
	}
	return res, nil
}

//go:noinline
func (op *operation) rowsOf(err error) (driver.Rows, error) {
	rows := op.rows
	*op = operation{}
	if err != nil {
		return nil, err
	}
	if w := rows.checkout.watcher; w != nil {
		w.Opened()
	}
	return rows.handedOut(), nil
}

// attempt is the part of do under the session's lock. again: do tries once more, perhaps
// on another session.
func (op *operation) attempt(ctx context.Context) (again bool, err error) {
	c, r := op.c, op.Conn
	op.started, op.calls = true, r.Session.Calls()
	if c.held.WasTakenBack() && lost(op) {
		return false, errTakenBack
	}
	if c.on != nil {
		if again, err = admit(op); again || err != nil {
			return again, err
		}
	}
	op.Measure()
	if floor.Enabled() {
		owe(ctx, op)
	}
	if beginWaits(op) {
		if again, err = beginFirst(ctx, op); again || err != nil {
			return again, ctxerr.Of(ctx, err)
		}
	}
	if ctxsettings.Used() && op.kind < pinging {
		if again, err = op.useSettings(ctx); again || err != nil {
			return again, err
		}
	}
	if op.kind <= querying {
		return op.run(ctx)
	}
	return op.execute(ctx)
}

// lost reports whether op asks for what the last statement has left on a connection that the checkout has no more. A sandbox has one
// session.
func lost(op *operation) bool {
	return op.kind != preparing && op.c.watcher == nil && op.is(textcache.AsksBack)
}

// execute is the part of attempt that has the session do what op is, if that is not to run a text.
func (op *operation) execute(ctx context.Context) (again bool, err error) {
	switch op.kind {
	case preparing:
		return op.prepare(ctx)
	case beginning:
		return op.begin(ctx)
	case lending:
		return false, op.lend()
	case attaching:
		return false, nil
	}
	return op.finishUnexecuted(ctx, op.Conn.Session.Ping(ctx))
}

// run executes the text of the operation. again: it has to be tried once more. It opens the virtual rows last: as soon as the rows are
// open, others may take the rows' connection.
func (op *operation) run(ctx context.Context) (again bool, err error) {
	c, r := op.c, op.Conn
	if op.virtual != nil {
		if err = op.age(); err != nil {
			return false, err
		}
	}
	c.held.MakeWay(r, op.Effect)
	var begun time.Time
	if op.paced != nil {
		begun, op.Wrote = time.Now(), op.paced.Asks()
	}
	executed, err := r.Session.Run(ctx, &op.Statement)
	if op.paced != nil {
		op.paced.Ran(time.Since(begun))
	}
	if !executed {
		return op.unexecuted(ctx, err)
	}
	if r.Meter.TellsSlow() {
		r.CountAffected(op.Result, err)
	}
	first := !c.held.Executed()
	if err != nil {
		if again, err = op.finish(ctx, err); again {
			return true, nil
		}
	} else {
		c.held.Ran(&op.Want)
	}
	if err != nil || op.Effect != dialects.Clean {
		op.ended(err)
	}
	if err == nil && op.Queries {
		op.rows = c.openRows(&op.Statement, first)
	}
	return false, err
}

// unexecuted is the end of run if the text was not executed. err says why.
func (op *operation) unexecuted(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case err == session.ErrUnconverted:
		return op.convert()
	case op.Unprepared:
		return op.finishUnexecuted(ctx, err)
	}
	return false, err
}

// age gives op's virtual statement its place in time, or returns the error of a statement whose text has
// another meaning by now.
func (op *operation) age() error {
	c, v := op.c, op.virtual
	op.Prepares, op.Owner = true, v.owner
	switch {
	case !v.prepared:
		return nil
	case op.kind == preparing:
		v.renamed = c.renamed
	case v.renamed < c.renamed:
		return errRenamed
	}
	if v.generation == 0 && op.Conn.Session.Traits().PreparedAges {
		v.generation = c.source.pool.Generations.Open(v.query)
		c.aging = append(c.aging, v)
	}
	op.Generation = v.generation
	return nil
}

// errRenamed is the error of a prepared statement whose text has another meaning by now.
var errRenamed = errors.New("pooldriver: the program prepared this statement before it changed the connection's database, SQL mode or character set; the server would execute the statement with the old values; prepare it again")

// prepare is attempt for a text that the program prepares.
func (op *operation) prepare(ctx context.Context) (again bool, err error) {
	_ = op.age() // the statement is prepared now
	op.Keep = true
	if op.Conn.Session.Traits().PreparingActs {
		t, _ := op.c.look(op.Text)
		op.Effect = t.Effect
	}
	asked, err := op.Conn.Session.Prepare(ctx, &op.Statement)
	op.Effect = dialects.Clean // a session of the task's own is not needed to prepare
	if !asked {
		return false, err
	}
	return op.finishUnexecuted(ctx, err)
}

// convert converts the arguments for the driver without the lock, because that runs code of the program,
// which may use the task.
func (op *operation) convert() (again bool, err error) {
	converter := op.Conn.Session.Converter(&op.Statement)
	op.c.held.Unlock(&op.Want)
	op.Args, err = converter.Convert(op.Args)
	op.Converted = err == nil
	return op.Converted, err
}

// ended records the effects of a statement that has run, and is not clean, on the checkout and on
// the *sql.DB. err is the error of the statement.
func (op *operation) ended(err error) {
	c := op.c
	if op.Effect == dialects.Writes {
		c.wrote()
	}
	if err != nil {
		return
	}
	if op.sharesState() {
		op.sharing = c.held.Task()
	}
	if op.Effect&dialects.Renames != 0 {
		c.renamed++
	}
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
	if r := op.Conn; op.started && op.Locked() && r.Session.Calls() > op.calls && !c.held.HasTx() {
		// The task learns from the loss barrier what its main session has lost.
		told := c.held.OnMain(&op.Want)
		if c.held.Executed() && !session.LeavesNothing(r.Session.Effect()) && !told {
			c.refuse(errDriverPanicked)
		}
		r.Session.MarkUnusable()
		c.held.StandDown(&op.Want)
	}
	op.Args = nil // after a panic nobody empties op
	if c.to != nil {
		countRead(op)
	}
	c.held.Done(&op.Want)
	if op.sharing != nil {
		op.tellShared()
	}
	if c.watcher != nil {
		leave(c)
	}
	c.endEarly()
}

// finish judges an execution. If err is not nil, op.Said has what it says of the server. again: do
// tries once more. Otherwise the operation returns the error.
func (op *operation) finish(ctx context.Context, err error) (again bool, _ error) {
	c := op.c
	if err == driver.ErrSkip {
		return false, err
	}
	if err != nil {
		if again, err = op.failed(ctx, err, true); again {
			return true, nil
		}
	}
	c.held.Ran(&op.Want)
	return false, err
}

// finishUnexecuted is finish after a call of the driver that changes no data.
func (op *operation) finishUnexecuted(ctx context.Context, err error) (again bool, _ error) {
	if err != nil && err != driver.ErrSkip {
		op.Said = op.Conn.Session.Diagnose(err)
		return op.failed(ctx, err, false)
	}
	if err == nil {
		op.c.held.Touch()
	}
	return false, err
}

// errTakenBack is the error of a text that asks for state which the last statement has left on its
// connection, if that connection was taken back.
var errTakenBack = errors.New("pooldriver: this statement asks for what the statement before it has left on its connection, but others waited for the connection and got it while the rows were open; read the rows to their end first, use a transaction, or raise pool_max_conns")

// lend lends the session to a function of Raw. From here on the checkout refuses every
// operation.
func (op *operation) lend() error {
	l, err := binding.Lend(&op.c.held, &op.Want)
	if err != nil {
		return err
	}
	op.c.lend(&Loan{held: l, checkout: op.c})
	return nil
}

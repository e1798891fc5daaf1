package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// checkout is one use of a virtual connection. It begins when database/sql takes the
// virtual connection, and ends when database/sql puts it back. A virtual connection has
// one checkout, which begins anew each time. database/sql's lock on the virtual connection
// protects it.
type checkout struct {
	connector *core
	private   binding // of checkouts without a task

	// real is the attached connection, and bound is the binding that has it. Both are nil
	// before the first operation. The fields after them say what has happened since real
	// was attached.
	real     *realConn
	bound    *binding
	scope    *task.Scope     // of InTx
	label    *string         // of the context that has attached it; nil: none
	from     *task.Task      // an outer task: the statement's context was derived from its context
	touched  bool            // it has used real: an operation cannot move to another connection
	executed bool            // it has executed a statement on real
	parted   bool            // rows were read into memory and real, on which they were opened, was taken back
	renamed  uint32          // its statements with dialects.Renames
	open     *rows           // the rows that its last operation has opened
	spare    *rows           // closed rows, which the next query uses again
	last     *textcache.Text // of the last operation: in a loop the next operation has the same text
	tx       *transaction    // the innermost of its transactions that is open
	aging    []*text         // its statements that have a generation

	// refusal is the error of every operation; nil: operations run. With
	// errDriverPanicked, database/sql cannot end this checkout, or the checkout has lost
	// session state.
	refusal error
	lent    *loan // to a function of Raw; nil: none

	// values is the context with which database/sql has begun the checkout; nil: none is known.
	values context.Context
}

// start finds the session for an operation, locks it, and begins a deferred transaction.
func (c *checkout) start(ctx context.Context, op *operation) error {
	if c.refusal != nil {
		return c.refusal
	}
	for {
		if err := c.reach(ctx, op); err != nil {
			return ctxerr.Of(ctx, err)
		}
		op.started, op.calls = true, op.real.Calls()
		if c.parted && !c.executed && c.asksBack(op) {
			return errTakenBack
		}
		if !op.measured {
			op.measure()
		}
		if op.real.Deferred() == nil {
			return nil
		}
		if again, err := c.beginDeferred(ctx, op); !again {
			return ctxerr.Of(ctx, err)
		}
	}
}

// reach finds the session and locks it.
func (c *checkout) reach(ctx context.Context, op *operation) error {
	op.started = false
	b := c.bound
	switch {
	case b == nil:
		return c.attach(ctx, op)
	case b.isPrivate():
		return c.enter(ctx, op)
	}
	if c.tx == nil && b.shares {
		// A *sql.Conn: this statement's context may be one of InTx, although the last
		// statement's was not.
		var p task.Place
		switch err := c.connector.findPlace(ctx, &p); {
		case err == nil && p.Task == b.task:
			c.scope, op.scope = p.Scope, p.Scope
		case c.scope.Left():
			c.scope = nil
		}
	}
	return b.enter(ctx, c, op)
}

// enter is reach for a checkout without a task that has attached a connection. The
// checkout may have lost that connection: when others waited, its rows were read into
// memory, and the connection was taken back.
func (c *checkout) enter(ctx context.Context, op *operation) error {
	r, rows := c.real, c.open
	c.open = nil
	if rows != nil && rows.Detached() {
		r = nil // it may belong to another borrower: do not wait for its lock
	}
	if r == nil {
		return c.attachAgain(ctx, op)
	}
	if err := r.Lock(ctx); err != nil {
		c.open = rows
		return err
	}
	if rows != nil {
		rows.Attach()
		if rows.Detached() {
			r.Unlock()
			return c.attachAgain(ctx, op)
		}
	}
	op.real, op.locked = r, true
	if rows != nil || r.Traits().BadConnUnsure {
		// The driver may answer a dead context on a healthy connection with ErrBadConn.
		return ctx.Err()
	}
	return nil
}

// attachAgain is attach for a checkout whose connection was taken back.
func (c *checkout) attachAgain(ctx context.Context, op *operation) error {
	c.part()
	c.bound, op.reclaimed = nil, true
	return c.attach(ctx, op)
}

// attach is reach for the first operation of a checkout.
func (c *checkout) attach(ctx context.Context, op *operation) error {
	if c.tx != nil {
		return c.attachDeferred(ctx, op)
	}
	var p task.Place
	if err := c.connector.findPlace(ctx, &p); err != nil {
		return err
	}
	if p.Scope.Left() {
		return sql.ErrTxDone
	}
	op.scope, c.label = p.Scope, p.Label
	if p.Task != nil {
		b, err := c.connector.bindTo(p.Task)
		if err != nil {
			return err
		}
		c.bound, c.scope, c.from = b, p.Scope, p.From
		if err := b.enter(ctx, c, op); err != nil {
			if c.real == nil {
				c.unbind()
			}
			return err
		}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !op.goesOn() && !c.connector.admits(nil, p.From) {
		return c.connector.pool.DrainingError()
	}
	return c.borrow(ctx, op, p.From)
}

// borrow attaches a connection of the pool without a task.
func (c *checkout) borrow(ctx context.Context, op *operation, from *task.Task) error {
	r, err := c.connector.acquire(c.forHooks(ctx), from, c.label)
	if err != nil {
		c.connector.tellNotAcquired(ctx, c.label, nil, err)
		return err
	}
	c.bound = &c.private
	return c.private.attach(ctx, c, op, r)
}

// attachDeferred is attach for the first statement of a deferred transaction without a
// task. The transaction stays without a task, also if the statement's context carries one.
// If the statement gets no connection, the transaction fails for good: otherwise the
// program could commit later statements without this one.
func (c *checkout) attachDeferred(ctx context.Context, op *operation) error {
	t := c.tx
	if err := t.Refused(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, merged := mergedctx.New(t.Context(), ctx)
	defer merged.Release()
	place := task.PlaceOf(t.Context())
	c.label = place.Label
	err := ctxerr.Of(both, c.borrow(both, op, place.From))
	t.attached()
	if err != nil {
		t.Refuse(err)
		return err
	}
	t.owner, t.bound = op.real, c.bound
	op.real.Defer(&t.Tx)
	op.real.Began(&t.Tx, time.Time{})
	return nil
}

// hold makes r the connection of the checkout, which has not used r yet. With nil the
// checkout has no connection.
func (c *checkout) hold(r *realConn) { c.real, c.touched, c.executed = r, false, false }

// share makes r, which others have used, the connection of the checkout. executed: a statement
// of the checkout counts as executed on it.
func (c *checkout) share(r *realConn, executed bool) {
	c.real, c.touched, c.executed = r, true, executed
}

// letGo takes the connection from the checkout, with the rows that it has opened there.
func (c *checkout) letGo() (r *realConn, open *rows) {
	r, open = c.real, c.open
	c.hold(nil)
	c.open = nil
	return r, open
}

// detach ends the checkout. A clean connection can be lent again at once. Rollback and
// cleaning happen in the background, and the connection counts as active until they end.
func (c *checkout) detach() {
	if b := c.bound; b != nil {
		b.detach(c)
	}
	c.unbind()
	c.parted, c.renamed, c.values = false, 0, nil
}

func (c *checkout) unbind() {
	c.bound, c.scope, c.from, c.tx = nil, nil, nil, nil
}

// discard ends the checkout and the real connection with it.
func (c *checkout) discard() {
	b, r := c.bound, c.real
	if r != nil && (c.open == nil || !c.open.Detached()) && b.take(r) {
		r.MarkUnusable()
		b.untake(r)
	}
	c.detach()
}

// part takes the connection from the checkout, whose rows are in memory.
func (c *checkout) part() {
	c.hold(nil)
	c.parted = true
}

// errTakenBack is the error of a text that asks for what the statement before it has left,
// where that statement's connection was taken back.
var errTakenBack = errors.New("pooldriver: this asks what the statement before it has left on its connection, and while that statement's rows were open others waited for the connection and got it; read the rows to their end first, use a transaction, or raise pool_max_conns")

// asksBack reports whether op's text asks for what the statement before it has left.
func (c *checkout) asksBack(op *operation) bool {
	judge, ok := c.connector.dialect.(dialects.ReadJudge)
	return ok && op.text != nil && judge.AsksBack(op.Text)
}

// text is the text of a virtual statement.
type text struct {
	query      string
	prepared   bool             // by the program; otherwise it is a query with arguments
	generation uint64           // see stmtcache.Generations; 0: the statement has none
	renamed    uint32           // checkout.renamed when the program prepared it
	owner      *stmtcache.Owner // nil: what it prepares is kept by its text
}

// closeOwned closes what t has prepared, at once where c has its connection. What it has
// prepared elsewhere is closed when that connection is used next.
func (c *checkout) closeOwned(t *text) (err error) {
	if t.owner == nil {
		return nil
	}
	if r, b := c.real, c.bound; r != nil && (c.open == nil || !c.open.Detached()) && r.TryLock() {
		defer r.Unlock() // also by a panic of the driver
		if r.holder.Load() == b {
			err = r.Disown(t.owner)
		}
	}
	if t.owner.Close() {
		c.connector.pool.NotifyOrphans()
	}
	return err
}

// endText forgets the generation of a text whose statement is closed.
func (c *checkout) endText(t *text) {
	if t.generation == 0 {
		return
	}
	c.connector.generations.Close(t.query)
	t.generation = 0
	c.aging = slices.DeleteFunc(c.aging, func(other *text) bool { return other == t })
}

// hookContext is what the driver's own hooks (connect, ResetSession) get of a borrower: it ends
// with the statement, and has the values of the context with which database/sql has taken the
// connection, as over the bare driver.
type hookContext struct {
	context.Context // the statement's
	values          context.Context
}

func (h hookContext) Value(key any) any { return h.values.Value(key) }

// forHooks is ctx for the driver's hooks.
func (c *checkout) forHooks(ctx context.Context) context.Context {
	if c.values == nil || isSame(ctx, c.values) {
		return ctx
	}
	return hookContext{ctx, c.values}
}

// isSame reports whether two contexts are known to be one: they have the same type and the same
// data. To compare them by == would panic if the program's type cannot be compared.
func isSame(a, b context.Context) bool {
	return *(*[2]uintptr)(unsafe.Pointer(&a)) == *(*[2]uintptr)(unsafe.Pointer(&b)) //nolint:gosec // it looks at no memory but its own
}

// Some wrappers (sqlhooks, DataDog's) hide driver.Validator: then nobody tells us when
// database/sql puts a connection back. ResetSession finds out, ends the checkout, and
// from then on checkouts end early.

// tellHiddenValidator has the log warned once.
func (c *core) tellHiddenValidator() {
	if c.hiddenValidator.Swap(true) {
		return
	}
	c.report.ValidatorHidden()
}

// endEarly ends the checkout before database/sql does, if a wrapper hides the end from us
// and nothing is left on the session: no transaction, no rows, no state.
func (c *checkout) endEarly() {
	if !c.connector.hiddenValidator.Load() || c.tx != nil || c.lent != nil || c.refusal != nil {
		return
	}
	b, r := c.bound, c.real
	if b == nil || r == nil || !b.take(r) {
		return
	}
	idle := !r.Reading() && (b.shares || !r.pin().KeepsTask() && session.LeavesNothing(r.Effect()))
	b.untake(r)
	if idle {
		c.detach()
	}
}

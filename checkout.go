package pooldriver

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/pooldriver/pooldriver/dialects"
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

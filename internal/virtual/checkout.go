package virtual

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// checkout is one use of a virtual connection. It begins when database/sql takes the
// virtual connection, and ends when database/sql puts it back. A virtual connection has
// one checkout, which begins anew each time. database/sql's lock on the virtual connection
// protects it.
type checkout struct {
	// What every statement touches comes first, to share few cache lines.

	source  *Source
	owedTo  *binding.Binding // the task that may use a result or statement of an earlier checkout; nil: none
	last    *textcache.Text  // of the last operation: in a loop the next operation has the same text
	spare   *rows            // closed rows, which the next query uses again
	on      *replica.Replica // the replica that serves the checkout; nil: the primary does
	to      *route           // how the present operation is routed; nil: there are no replicas
	refused error            // the watcher's error for the present operation
	watcher beneath.Watcher  // nil: none
	renamed uint32           // how many of its statements had dialects.Renames
	owes    bool             // it has given a result or a prepared statement to the program
	// refusal is the error of every operation; nil: operations run. With
	// errDriverPanicked, database/sql cannot end this checkout, or the checkout has lost
	// session state.
	refusal error

	held binding.Checkout
	op   operation // the present operation

	spareTx *transaction // has ended; the next transaction uses it again
	aging   []*text      // its statements that have a generation
	loan    *Loan        // to a function of Raw; nil: none
}

// The refusals.
var (
	errLent = errors.New("pooldriver: this *sql.Conn is lent to a function of Raw until the function returns: let the function use the driver.Conn that it was given, or take another *sql.Conn")
	// errRawClosed makes database/sql close the *sql.Conn.
	errRawClosed = fmt.Errorf("pooldriver: the function of Raw has closed the connection of this *sql.Conn, or has left the connection unusable, so the session is gone; take another *sql.Conn, and return driver.ErrBadConn from a function that ends a connection on purpose: %w", driver.ErrBadConn)
	// errDriverPanicked is for a checkout whose driver has panicked.
	errDriverPanicked = errors.New("pooldriver: the driver has panicked, so the connection and its session are gone; take another *sql.Conn")
)

// refuse makes why the error of every operation from now on.
func (c *checkout) refuse(why error) { c.refusal = why }

// lend makes every operation fail until the loan l has ended.
func (c *checkout) lend(l *Loan) { c.loan, c.refusal = l, errLent }

// operate begins an operation.
func (c *checkout) operate(kind kind) *operation {
	op := &c.op
	if op.kind != over {
		*op = operation{} // the driver has panicked in the last one
	}
	op.c, op.kind = c, kind
	return op
}

// look returns the cached facts of a text, and whether the text was met lately. In a loop the text is
// the same as the last text.
func (c *checkout) look(query string) (t *textcache.Text, again bool) {
	if last := c.last; last != nil && last.Query == query {
		return last, true
	}
	t, again = c.source.texts.Of(c.source.config.Dialect, query)
	c.last = nil
	if again {
		c.last = t
	}
	return t, again
}

// wrote is called after a statement that only writes.
func (c *checkout) wrote() {
	if !c.held.HasTx() && !c.held.Shares() {
		c.source.pool.Settings().TakeNextTx() // SQLite's autocommit has ended the transaction that the setting was for
	}
}

// end ends the checkout.
func (c *checkout) end() {
	c.held.Detach()
	goTo(c, nil)
	c.renamed = 0
}

// gives records that the program gets a result or a prepared statement.
func (c *checkout) gives() { c.owes = true }

// recordOwedTo records, before the end of the checkout, the task to which its results and statements belong.
func (c *checkout) recordOwedTo() {
	if c.owes {
		c.owes, c.owedTo = false, c.held.Binding()
	}
}

// isOwed reports whether only the task owedTo may use the virtual connection. database/sql takes the
// lock of the virtual connection when a program asks the result of an Exec, or closes a statement. If
// another checkout used the virtual connection, it would hold that lock while it waits for a row that
// the task has locked, or for the connection that the task holds. The task and the checkout would wait
// for each other, and neither the server nor the pool could see this deadlock.
func (c *checkout) isOwed() bool { return c.owedTo != nil && c.owedTo.Holds() }

// discard ends the checkout and the real connection with it.
func (c *checkout) discard() {
	c.held.Discard()
	goTo(c, nil)
	c.renamed = 0
}

// endEarly ends the checkout before database/sql does, if a wrapper hides the end from us
// and nothing is left on the session: no transaction, no rows, no state.
func (c *checkout) endEarly() {
	if c.source.hiddenValidator.Load() && c.refusal == nil && c.held.Idle() {
		c.recordOwedTo()
		c.end()
	}
}

// Loan is a session that is lent to a function of Raw.
type Loan struct {
	held     *binding.Loan
	checkout *checkout
	later    []func() // without a task: calls that wait for the end of the function
}

// ErrRawPanicked is the argument of Loan.End if the function given to Raw has panicked.
var ErrRawPanicked = errors.New("pooldriver: the function given to Raw panicked, so its connection is closed; Raw's caller gets the panic")

// End takes the session back into its checkout. err is the function's error.
func (l *Loan) End(err error) {
	c := l.checkout
	c.loan, c.refusal = nil, nil
	if l.held.End(err, err == ErrRawPanicked) {
		c.refusal = errRawClosed
	}
	if err != ErrRawPanicked { // after a panic nobody calls the driver any more
		for _, do := range l.later {
			do()
		}
	}
}

// EndWithoutLock ends the loan of a *sql.Conn that was closed meanwhile, so that its lock cannot be taken.
func (l *Loan) EndWithoutLock(err error) { l.held.EndWithoutLock(err) }

// Call calls a function of Raw. A panic costs the connection.
func (l *Loan) Call(fn func(driver.Conn) error) error {
	return l.held.Conn.Session.Guard(func() error { return l.held.Conn.Session.RawReturned(fn(l.held.Conn.Session.DriverConn())) })
}

// text is the text of a virtual statement.
type text struct {
	query      string
	prepared   bool             // the program has prepared it; false: it is a query with arguments
	generation uint64           // see stmtcache.Generations; 0: the statement has none
	renamed    uint32           // checkout.renamed when the program prepared it
	owner      *stmtcache.Owner // owns the driver's statements; nil: they are kept by their text
}

// closeOwned closes the driver's statements that t has prepared: at once on the connection that c
// has, and on each other connection when that connection is used next.
func (c *checkout) closeOwned(t *text) (err error) {
	if t.owner == nil {
		return nil
	}
	err = c.held.Disown(t.owner)
	if t.owner.Close() {
		c.source.pool.NotifyOrphans()
	}
	return err
}

// forgetGeneration forgets the generation of a text whose statement is closed.
func (c *checkout) forgetGeneration(t *text) {
	if t.generation == 0 {
		return
	}
	c.source.pool.Generations.Close(t.query)
	t.generation = 0
	c.aging = slices.DeleteFunc(c.aging, func(other *text) bool { return other == t })
}

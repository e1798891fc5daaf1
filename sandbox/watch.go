package sandbox

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/task"
)

// checkout watches one virtual connection of the test: who uses it, and for what. It refuses operations that would wait
// for ever or come after the test. The lock of the sandbox protects it. Its owner reads it without the lock.
type checkout struct {
	s     *sandbox
	moves uint64 // of the stage, when its operation began to wait
	state
}

// state is one use of a virtual connection.
type state struct {
	taken place           // who took it
	use   beneath.Use     // what its last operation was, for the report
	text  string          // of that operation
	at    place           // of that operation
	ctx   context.Context // of that operation
	tasks *task.Task      // the explicit task of that operation
	txs   int             // how many transactions are open; the first has begun at txAt
	txAt  place
	txCtx context.Context // of BeginTx: database/sql rolls back when it ends
	inTx  *task.Task      // the explicit task in which the transaction has begun
	whose *task.Task      // it is a checkout of this task; nil: of none
	rows  bool            // the last operation has given rows
	used  bool            // something was executed: it may hold the session
	busy  bool            // an operation runs
}

var _ beneath.Watcher = (*checkout)(nil)

// prepared is a prepared statement that is open.
type prepared struct {
	query string
	at    place
}

func (c *checkout) Take() {
	at := here()
	c.s.lift()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.state = state{taken: at}
	c.s.checkouts[c] = true
}

// lift removes a limit that the program has set on the handle (SetMaxOpenConns). The test has one
// session anyway, and database/sql would wait for a connection where nobody sees who waits.
func (s *sandbox) lift() {
	if db := s.db.Load(); db != nil && db.Stats().MaxOpenConnections > 0 {
		db.SetMaxOpenConns(0)
	}
}

func (c *checkout) Give() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.checkouts[c] && c.rows && !c.ofConn() {
		c.s.cutLocked(c, c.ctx) // closes rows that the test has left open
	}
	delete(c.s.checkouts, c)
}

// Enter records an operation, or refuses it. A ping needs no session where it would wait for its own goroutine: whoever
// has the session knows that it works.
func (c *checkout) Enter(ctx context.Context, use beneath.Use, text string) (answered bool, err error) {
	at, p := here(), task.PlaceOf(ctx)
	c.s.lift()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.s.closedLocked(use, text, at); err != nil {
		return false, err
	}
	var in *task.Task
	if p.Task != nil && !p.Task.Implicit() {
		in = p.Task
	}
	if !c.used {
		if err := c.s.circleLocked(c, in, use, text, at); err != nil {
			if use == beneath.UsePing {
				return true, nil
			}
			return false, err
		}
	}
	c.use, c.text, c.at, c.ctx, c.tasks, c.busy, c.rows = use, text, at, ctx, in, true, false
	c.s.last = c
	c.s.lastText, c.s.lastAt = text, at
	c.moves = c.s.stage.moves.Load()
	return false, nil
}

func (c *checkout) Leave(whose *task.Task) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.busy { // else it was refused
		c.busy, c.used, c.whose = false, true, whose
	}
}

func (c *checkout) Opened() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.rows = true
}

// isOver reports whether nothing of c is open, although nobody has given it back: its task has ended, or an argument of its
// query has panicked, which database/sql does not survive.
func (c *checkout) isOver() bool {
	switch {
	case c.busy || c.ofConn():
		return false
	case c.whose != nil && c.whose.Context.Err() != nil:
		return true
	}
	return c.use == beneath.UseQuery && !c.rows && c.txs == 0
}

func (c *checkout) Begun(ctx context.Context) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.txs++; c.txs == 1 {
		c.txAt, c.txCtx, c.inTx = c.at, ctx, c.tasks
	}
}

func (c *checkout) Ended() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.txs == 1 {
		c.s.cutLocked(c, c.txCtx)
		c.use, c.text = beneath.UseBegin, ""
	}
	c.txs = max(0, c.txs-1)
}

func (c *checkout) Prepared(s driver.Stmt, text string) {
	at := here()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.prepared[s] = prepared{text, at}
}

func (c *checkout) Closed(s driver.Stmt) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	delete(c.s.prepared, s)
}

// closedLocked returns why nothing can be executed in the sandbox now.
func (s *sandbox) closedLocked(use beneath.Use, text string, at place) error {
	switch {
	case s.ended:
		return fmt.Errorf("sandbox: the test %s has ended, and %s came after it, at %v: let the test wait until everything that it has started has ended", s.name, s.what(use, text), at)
	// Package testing orders these reads of the tests' fields: a test's own goroutine goes on beside a subtest
	// only when that has called t.Parallel.
	case s.child != nil && at.goroutine == s.goroutine && s.child.goroutine != s.goroutine && isParallel(s.child.t):
		return s.child.lateParallel()
	case s.parent != nil && at.goroutine == s.goroutine && isParallel(s.t):
		return s.lateParallel()
	case s.child != nil:
		return fmt.Errorf("sandbox: the subtest %s has a level of its own in the sandbox of %s, and %s, at %v, uses the handle of the test around it; in the subtest use the handle of the subtest", s.child.name, s.name, s.what(use, text), at)
	}
	return nil
}

// what describes an operation without literals.
func (s *sandbox) what(use beneath.Use, text string) string {
	if text == "" || use == beneath.UseRaw {
		return string(use)
	}
	return string(use) + " (" + s.stage.brief(text) + ")"
}

// ofConn reports whether the checkout is that of a *sql.Conn.
func (c *checkout) ofConn() bool {
	return c.taken.through("database/sql.(*DB).Conn") || c.taken.through("database/sql.(*Conn).") || c.taken.through("github.com/pooldriver/pooldriver/pgxpooldriver.(*Pool).Acquire")
}

// describe says what a checkout is, for reports.
func (c *checkout) describe(s *sandbox) string {
	switch {
	case c.txs > 0:
		return "a transaction that is open"
	case c.ofConn():
		return "a *sql.Conn that is open"
	case c.busy:
		return s.what(c.use, c.text) + " that runs"
	case c.rows:
		return "rows that are open (" + s.stage.brief(c.text) + ")"
	case c.use == "":
		return "a connection that is in use"
	}
	return s.what(c.use, c.text) + " whose connection is in use"
}

// since returns the place where the thing was opened that describe names.
func (c *checkout) since() place {
	switch {
	case c.txs > 0:
		return c.txAt
	case c.rows && !c.ofConn(), c.busy:
		return c.at
	}
	return c.taken
}

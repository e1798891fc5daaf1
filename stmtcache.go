package pooldriver

import (
	"container/list"
	"database/sql/driver"
	"math"
	"sync"
)

// stmtCache keeps the driver's prepared statements of one real connection by
// their texts, the least recently used one to go first. It belongs to whoever
// owns the connection.
type stmtCache struct {
	max    int
	byText map[string]*list.Element // of *realStmt
	order  list.List                // most recently used first
	// world counts the changes of what texts mean on this connection.
	// Statements of an older world are not used again. They are closed when
	// they are met: closing sends something, and when the world changes the
	// connection may be reading rows, or in a transaction that has failed.
	world uint64

	unclosed  bool // the driver has refused to close one
	forgotten int  // so many in all
}

// maxForgotten is after how many statements that were forgotten a connection is replaced.
// Drivers may count a statement until it is closed, also one that its session has ended
// (pgx's for database/sql: some 300 bytes), and closing costs a round trip each.
const maxForgotten = 10_000

// realStmt is a driver's statement on one real connection.
type realStmt struct {
	si   driver.Stmt
	text string
	// world and edition are what they were when it was prepared.
	world, edition uint64
	era            uint64    // of its connection, if prepared in a task's transaction, or 0
	converter      converter // once asked
	asked          bool
	// open counts the rows read from it that are not closed: a statement
	// with open rows is not executed again, a second handle is.
	open int
	// kept: in the cache, so that closing is the cache's affair.
	kept  bool
	kinds []kind // of the arguments so far, where that matters
}

// get returns the statement of that text and edition if it is there and free.
// One that was prepared in the same era of a task's transaction is of now,
// whatever its edition: its tables are locked since (PostgreSQL, 13.3.1).
func (c *stmtCache) get(text string, edition, era uint64) *realStmt {
	e := c.order.Front()
	if e == nil {
		return nil
	}
	s := e.Value.(*realStmt)
	if s.text != text { // as in a loop it is the last one again
		if e = c.byText[text]; e == nil {
			return nil
		}
		s = e.Value.(*realStmt)
	}
	if !c.ofNow(s, edition, era) {
		c.drop(e)
		return nil
	}
	if s.open > 0 {
		return nil
	}
	c.order.MoveToFront(e)
	return s
}

func (c *stmtCache) ofNow(s *realStmt, edition, era uint64) bool {
	return s.world == c.world && (s.edition >= edition || era != 0 && s.era == era)
}

// sweep drops the statement of text, unless it is of now. An edition of 0 says that
// nobody has text prepared.
func (c *stmtCache) sweep(text string, edition, era uint64) {
	if edition == 0 {
		edition = math.MaxUint64
	}
	if e := c.byText[text]; e != nil && !c.ofNow(e.Value.(*realStmt), edition, era) {
		c.drop(e)
	}
}

// dropText drops the statement of text, if there is one.
func (c *stmtCache) dropText(text string) {
	if e := c.byText[text]; e != nil {
		c.drop(e)
	}
}

// add takes a freshly prepared statement. If it is not to be kept, its text is
// there already (that handle has open rows), or nothing is kept at all, it stays
// outside and is closed after its use.
func (c *stmtCache) add(text string, edition uint64, si driver.Stmt, keep bool) *realStmt {
	s := &realStmt{si: si, text: text, world: c.world, edition: edition}
	if !keep || c.max <= 0 || c.byText[text] != nil {
		return s
	}
	if c.byText == nil {
		c.byText = make(map[string]*list.Element)
	}
	for c.order.Len() >= c.max {
		c.drop(c.order.Back())
	}
	s.kept = true
	c.byText[text] = c.order.PushFront(s)
	return s
}

// done ends a use of s: one execution, or one set of rows.
func (c *stmtCache) done(s *realStmt) {
	if !s.kept && s.open == 0 && s.si.Close() != nil {
		c.unclosed = true
	}
}

// drop takes an entry out. Rows still open on its statement close it.
func (c *stmtCache) drop(e *list.Element) {
	s := c.order.Remove(e).(*realStmt)
	delete(c.byText, s.text)
	s.kept = false
	c.done(s)
}

// expire makes the cache forget s, as after an error that says it is stale.
func (c *stmtCache) expire(s *realStmt) { s.world-- }

// expireAll makes it forget all of them.
func (c *stmtCache) expireAll() { c.world++ }

// empty closes all.
func (c *stmtCache) empty() {
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

// forget drops all without closing: the session they lived in has ended them.
func (c *stmtCache) forget() {
	c.forgotten += c.order.Len()
	c.unclosed = false
	c.byText = nil
	c.order.Init()
}

// editions tells statements of one text apart by when the program prepared
// them, where that matters (dialects.Traits.PreparedAges): a program that closes
// a statement and prepares it again expects one that fits the tables of now. As
// long as somebody has a text prepared, its edition stays.
type editions struct {
	mu     sync.Mutex // protects following fields
	live   map[string]*edition
	serial uint64
}

type edition struct {
	number uint64
	users  int
}

// open counts a user of text and returns the edition it may use.
func (e *editions) open(text string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live == nil {
		e.live = make(map[string]*edition)
	}
	ed := e.live[text]
	if ed == nil {
		e.serial++
		ed = &edition{number: e.serial}
		e.live[text] = ed
	}
	ed.users++
	return ed.number
}

// of returns the edition of a text that somebody has prepared, else 0.
func (e *editions) of(text string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ed := e.live[text]; ed != nil {
		return ed.number
	}
	return 0
}

// close counts the user out.
func (e *editions) close(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ed := e.live[text]
	if ed.users--; ed.users == 0 {
		delete(e.live, text)
	}
}

package pooldriver

import (
	"container/list"
	"database/sql/driver"
)

// stmtCache keeps the driver's prepared statements of one real connection by
// their texts, the least recently used one to go first. It belongs to whoever
// owns the connection.
type stmtCache struct {
	max    int
	byText map[string]*list.Element // of *realStmt
	order  list.List                // most recently used first
}

// realStmt is a driver's statement on one real connection.
type realStmt struct {
	si   driver.Stmt
	text string
	// open counts the rows read from it that are not closed: a statement
	// with open rows is not executed again, a second handle is.
	open int
	// kept: in the cache, so that closing is the cache's affair.
	kept bool
}

// get returns the statement of that text if it is there and free.
func (c *stmtCache) get(text string) *realStmt {
	e := c.byText[text]
	if e == nil {
		return nil
	}
	s := e.Value.(*realStmt)
	if s.open > 0 {
		return nil
	}
	c.order.MoveToFront(e)
	return s
}

// add takes a freshly prepared statement. If its text is there already (that
// handle has open rows), or nothing is kept at all, the new one stays outside
// and is closed after its use.
func (c *stmtCache) add(text string, si driver.Stmt) *realStmt {
	s := &realStmt{si: si, text: text}
	if c.max <= 0 || c.byText[text] != nil {
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
	if !s.kept && s.open == 0 {
		_ = s.si.Close()
	}
}

// remove takes s out of the cache, as after an error that says it is stale.
func (c *stmtCache) remove(s *realStmt) {
	if s.kept {
		c.drop(c.byText[s.text])
	}
}

// drop takes an entry out. Rows still open on its statement close it.
func (c *stmtCache) drop(e *list.Element) {
	s := c.order.Remove(e).(*realStmt)
	delete(c.byText, s.text)
	s.kept = false
	c.done(s)
}

// empty drops all.
func (c *stmtCache) empty() {
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

// forget drops all without closing: the session they lived in has ended them.
func (c *stmtCache) forget() {
	c.byText = nil
	c.order.Init()
}

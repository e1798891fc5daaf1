// Package stmtcache keeps the prepared statements of real connections.
package stmtcache

import (
	"container/list"
	"database/sql/driver"
	"math"
	"strings"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// Cache keeps the driver's prepared statements of one real connection by their texts, and evicts
// the least recently used statements. A large statement takes several places. A Cache belongs to
// the owner of the connection and is not safe for concurrent use.
type Cache struct {
	max    int                      // the greatest allowed sum of the weights
	weight int                      // the sum of the weights
	byText map[string]*list.Element // of *Stmt
	order  list.List                // most recently used first

	closeFailed bool // beside the length of order, to share a cache line
	// generation counts the changes of what texts mean on this connection. Statements
	// of an older generation are not used again. They are closed when they are next met: a Close
	// sends something, and when the generation changes the connection may be reading rows, or be in
	// a failed transaction.
	generation uint64

	owned map[*Owner]*Stmt // statements that an Owner keeps, besides those that are kept by their texts

	// CloseBy closes the driver's statements; nil: their Close does.
	CloseBy func(driver.Stmt) error

	forgotten int
}

// Stmt is a driver's statement on one real connection.
type Stmt struct {
	Driver driver.Stmt
	// Converter converts its arguments, once Asked is true.
	Converter driverconn.Converter
	Asked     bool
	// Open counts the open rows that are read from the statement. A statement with
	// open rows is not executed again: another handle is prepared.
	Open int
	// SchemaGeneration is the connection's generation at the prepare, if the prepare was in a
	// task's transaction, else 0.
	SchemaGeneration uint64

	text   string
	weight int
	// cacheGeneration and generation are the generations of the cache and of the text at the
	// prepare.
	cacheGeneration, generation uint64
	cached                      bool   // the cache closes it
	kinds                       []kind // of the arguments so far, if they matter
}

// weightOf is how many places a statement takes. The server's memory for a statement grows with
// its parameters. MariaDB 11.8 keeps some 700 bytes for each parameter: 128 batch inserts of 700
// rows took 180 MiB for one connection. weightOf finds the number of parameters in the text.
func weightOf(text string) int {
	const parameters, bytes = 16, 1024 // in one place
	return 1 + (strings.Count(text, "?")+strings.Count(text, "$"))/parameters + len(text)/bytes
}

// New returns a cache of at most limit statements, or of fewer large statements. If limit is 0, the
// cache keeps nothing.
func New(limit int) Cache { return Cache{max: limit} }

// Get returns the statement of text if it is cached, valid and without open rows, else
// nil. A statement is valid from the given generation of its text on (Generations). A statement
// that was prepared in the transaction's current schema generation is valid whatever its own
// generation: its tables have been locked since (PostgreSQL, 13.3.1).
func (c *Cache) Get(text string, generation, schema uint64) *Stmt {
	e := c.order.Front()
	if e == nil {
		return nil
	}
	s := e.Value.(*Stmt)
	if s.text != text { // in a loop the statement is at the front again
		if e = c.byText[text]; e == nil {
			return nil
		}
		s = e.Value.(*Stmt)
	}
	if !c.valid(s, generation, schema) {
		c.drop(e)
		return nil
	}
	if s.Open > 0 {
		return nil
	}
	c.order.MoveToFront(e)
	return s
}

func (c *Cache) valid(s *Stmt, generation, schema uint64) bool {
	return s.cacheGeneration == c.generation && (s.generation >= generation || schema != 0 && s.SchemaGeneration == schema)
}

// Has reports whether a statement of text is cached, valid or not.
func (c *Cache) Has(text string) bool { return c.byText[text] != nil }

// Len returns the number of cached statements.
func (c *Cache) Len() int { return c.order.Len() }

// DropStale drops the statement of text unless it is valid. A generation of 0 says that the program
// has no statement of text open: then only the schema generation can make the statement valid.
func (c *Cache) DropStale(text string, generation, schema uint64) {
	if generation == 0 {
		generation = math.MaxUint64
	}
	if e := c.byText[text]; e != nil && !c.valid(e.Value.(*Stmt), generation, schema) {
		c.drop(e)
	}
}

// Drop drops the statement of text if there is one.
func (c *Cache) Drop(text string) {
	if e := c.byText[text]; e != nil {
		c.drop(e)
	}
}

// Add takes a statement that was just prepared. The statement stays outside of the cache, and is
// closed after its use, if keep is false, if the cache keeps nothing at all, or if its text is
// cached already (the cached handle has open rows).
func (c *Cache) Add(text string, generation uint64, si driver.Stmt, keep bool) *Stmt {
	s := &Stmt{Driver: si, text: text, cacheGeneration: c.generation, generation: generation}
	if !keep || c.max <= 0 || c.byText[text] != nil {
		return s
	}
	if s.weight = weightOf(text); s.weight > c.max {
		return s
	}
	if c.byText == nil {
		c.byText = make(map[string]*list.Element)
	}
	for c.weight+s.weight > c.max {
		c.drop(c.order.Back())
	}
	s.cached = true
	c.weight += s.weight
	c.byText[text] = c.order.PushFront(s)
	return s
}

// Done ends a use of s: one execution, or one set of rows.
func (c *Cache) Done(s *Stmt) {
	if !s.cached && s.Open == 0 && c.close(s) != nil {
		c.closeFailed = true
	}
}

func (c *Cache) close(s *Stmt) error {
	if c.CloseBy != nil {
		return c.CloseBy(s.Driver)
	}
	return s.Driver.Close()
}

// drop takes an entry out. If rows of its statement are open, the Close of the rows closes the
// statement.
func (c *Cache) drop(e *list.Element) {
	s := c.order.Remove(e).(*Stmt)
	delete(c.byText, s.text)
	c.weight -= s.weight
	s.cached = false
	c.Done(s)
}

// MarkStale: s is not used again, for example after an error that says that s is stale.
func (c *Cache) MarkStale(s *Stmt) { s.cacheGeneration-- }

// MarkAllStale: none of the statements is used again.
func (c *Cache) MarkAllStale() { c.generation++ }

// Generation changes with MarkAllStale.
func (c *Cache) Generation() uint64 { return c.generation }

// CloseAll empties the cache.
func (c *Cache) CloseAll() {
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

// Forget empties the cache and closes nothing: the server's session has ended the statements.
func (c *Cache) Forget() {
	c.forgotten += c.order.Len()
	c.closeFailed = false
	c.byText, c.weight = nil, 0
	c.order.Init()
}

// CloseFailed reports whether the driver has refused to close a statement since the
// last Forget.
func (c *Cache) CloseFailed() bool { return c.closeFailed }

// Forgotten counts the statements that Forget has dropped. Drivers may count a statement until it
// is closed, also a statement that its session has ended (pgx for database/sql: some 300 bytes).
func (c *Cache) Forgotten() int { return c.forgotten }

package stmtcache

import (
	"database/sql/driver"
	"sync/atomic"
)

// Owner is a prepared statement of the program. It has one driver's statement for each real
// connection on which it was used. These live as long as the Owner. An Owner is safe for concurrent
// use.
type Owner struct {
	handles atomic.Int32
	closed  atomic.Bool
}

// Close notes that the program has closed o. left reports whether a driver's statement of o is
// still open: CloseOrphans closes it.
func (o *Owner) Close() (left bool) {
	o.closed.Store(true)
	return o.handles.Load() > 0
}

// Owned returns the statement of o, without open rows, or nil.
func (c *Cache) Owned(o *Owner) *Stmt {
	if s := c.owned[o]; s != nil && s.Open == 0 {
		return s
	}
	return nil
}

// Own takes a statement that was just prepared for o. If o has a statement here already, whose rows
// are open, the new statement is closed after its use.
func (c *Cache) Own(o *Owner, si driver.Stmt) *Stmt {
	s := &Stmt{Driver: si}
	if c.owned[o] != nil {
		return s
	}
	if c.owned == nil {
		c.owned = make(map[*Owner]*Stmt)
	}
	s.cached = true
	c.owned[o] = s
	o.handles.Add(1)
	return s
}

// Disown closes the statement of o, if o has one here. If rows of it are open, the Close of the
// rows closes it.
func (c *Cache) Disown(o *Owner) error {
	s := c.owned[o]
	if s == nil {
		return nil
	}
	delete(c.owned, o)
	o.handles.Add(-1)
	s.cached = false
	if s.Open > 0 {
		return nil
	}
	return c.close(s)
}

// CloseOrphans closes the statements whose owners are closed.
func (c *Cache) CloseOrphans() {
	for o := range c.owned {
		if o.closed.Load() {
			_ = c.Disown(o) // nobody is there to get the error
		}
	}
}

// DisownAll is called at the end of the connection.
func (c *Cache) DisownAll() {
	for o := range c.owned {
		_ = c.Disown(o)
	}
}

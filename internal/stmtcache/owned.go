package stmtcache

import (
	"database/sql/driver"
	"sync/atomic"
)

// Owner is a prepared statement of the program's whose driver's statements, one for each real
// connection on which it was used, live as long as it does. An Owner is safe for concurrent use.
type Owner struct {
	handles atomic.Int32
	closed  atomic.Bool
}

// Close says that the program has closed it. left reports whether a driver's statement of it
// is open somewhere: CloseOrphans closes it.
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

// Own takes a statement that was just prepared for o. If o has one here already, whose rows are
// open, this one is closed after its use.
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

// Disown closes the statement of o, if there is one and no rows of it are open; else closing
// them closes it.
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
	return s.Driver.Close()
}

// CloseOrphans closes the statements whose owners are closed.
func (c *Cache) CloseOrphans() {
	for o := range c.owned {
		if o.closed.Load() {
			_ = c.Disown(o) // the program is not there to be told
		}
	}
}

// DisownAll is for the end of the connection.
func (c *Cache) DisownAll() {
	for o := range c.owned {
		_ = c.Disown(o)
	}
}

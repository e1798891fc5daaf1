package pooldriver

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/pool"
)

// Plain queries with arguments. Where the driver prepares a statement for each,
// executes it and closes it, they are run by the same kept statements as those
// that the program prepares. One that cannot be prepared could not be run by the
// driver either: its error is the answer.

// prepares reports whether a query with arguments is run by a prepared statement
// that is kept: where the driver would prepare one each time.
func (c *conn) prepares(args []driver.NamedValue) bool {
	return len(args) > 0 && c.connector.traits.Reprepares
}

// giveStatementsBack closes what idle connections have prepared: the server's limit
// is reached, which is for all its clients. A ping ends when the server has seen to what
// was sent before: MySQL does not answer the closing of a statement.
func (c *Connector) giveStatementsBack() {
	var idle []pool.Lease[*realConn]
	defer func() { // also by a panic of the driver, which costs its connection
		for _, lease := range idle {
			if r := lease.Value(); r.running > 0 || r.broken {
				discard(r, lease)
			} else {
				mustEnd(lease.Release())
			}
		}
	}()
	for lease, ok := c.pool.TryAcquire(); ok; lease, ok = c.pool.TryAcquire() {
		idle = append(idle, lease)
		r := lease.Value()
		if r.stmts.Len() == 0 {
			continue
		}
		r.running++
		r.stmts.CloseAll()
		err := c.ping(context.Background(), r)
		r.running--
		r.broken = err != nil
	}
}

// refits lets t run with a statement prepared anew if the kept one was executed with
// arguments of other kinds.
func (c *conn) refits(t *operation, s *stmtcache.Stmt) bool {
	r := t.real
	if !r.traits.PreparedKeepsTypes || s.Fits(t.args) {
		return false
	}
	r.stmts.MarkStale(s)
	r.stmts.Done(s)
	c.unlock(t)
	return true
}

package pooldriver

import (
	"database/sql/driver"

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
// is reached, which is for all its clients.
func (c *Connector) giveStatementsBack() {
	var idle []pool.Lease[*realConn]
	defer func() { // also by a panic of the driver, which costs its connection
		for _, lease := range idle {
			if lease.Value().running > 0 {
				mustEnd(lease.Discard())
			} else {
				mustEnd(lease.Release())
			}
		}
	}()
	for lease, ok := c.pool.TryAcquire(); ok; lease, ok = c.pool.TryAcquire() {
		idle = append(idle, lease)
		r := lease.Value()
		r.running++
		r.stmts.empty()
		r.running--
	}
}

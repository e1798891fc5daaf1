package pooldriver

import (
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// Plain queries with arguments. Where the driver prepares a statement for each,
// executes it and closes it, they are run by the same kept statements as those
// that the program prepares.

// errNotPrepared: the driver did not prepare a plain query, and so runs it its
// own way.
var errNotPrepared = errors.New("pooldriver: not prepared")

// prepares reports whether a query with arguments is run by a prepared statement
// that is kept: where the driver would prepare one each time.
func (c *conn) prepares(args []driver.NamedValue) bool {
	return len(args) > 0 && c.connector.traits.Reprepares
}

// stale reports whether a statement that was run without preparing it runs once
// more: the driver keeps prepared statements of its own (pgx), and its own was
// stale.
func (c *conn) stale(t *try, err error) bool {
	return c.connector.dialect.Diagnose(err)&dialects.StaleStatement != 0 && c.renews(t)
}

// directly is what comes of running a text directly whose preparation was
// refused, if it was: where the driver can only prepare, that was the answer.
func (t *try) directly(err, refused error) error {
	if refused == nil {
		return err
	}
	if err == nil && t.known != nil {
		t.known.direct.Store(true)
	}
	if err == driver.ErrSkip {
		return refused
	}
	return err
}

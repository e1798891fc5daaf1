package pooldriver

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
)

// SetMaxOpenConns bounds the virtual connections. When all of them are in use, a statement inside
// another one waits in database/sql. A Connector sees neither this wait nor the limit: the virtual
// connections of a busy program look the same. So the functions that have the *sql.DB check the limit.

// handleSettled is how long after Open the program is expected to have set up its *sql.DB.
const handleSettled = time.Second

// lookAtLimit warns, after handleSettled, if db has a limit with which a statement inside another one
// may wait in database/sql.
func lookAtLimit(c *Connector, db *sql.DB) {
	time.AfterFunc(handleSettled, func() {
		if !c.closed.Load() {
			c.report.OpenLimit(db.Stats().MaxOpenConnections)
		}
	})
}

// waitedAbove returns the error of a BeginTx for scope. If BeginTx has waited in database/sql, the
// error says so: the error of database/sql itself is only that of the context.
func waitedAbove(db *sql.DB, scope *task.Scope, err error) error {
	s := db.Stats()
	if err != scope.Err() || s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
		return err
	}
	return fmt.Errorf("pooldriver: InTx has waited in database/sql, because SetMaxOpenConns(%d) lets it give no further connection, and a transaction or statement inside another one needs one; do not call SetMaxOpenConns: pool_max_conns bounds the connections: %w", s.MaxOpenConnections, err)
}

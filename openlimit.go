package pooldriver

import (
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/pooldriver/pooldriver/internal/repeated"
	"github.com/pooldriver/pooldriver/internal/task"
)

// SetMaxOpenConns bounds the virtual connections. When all of them are in use, a statement inside
// another one waits in database/sql. A Connector sees neither this wait nor the limit: the virtual
// connections of a busy program look the same. So the functions that have the *sql.DB check the limit.

var waits repeated.Line

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
// error and the log say so: the error of database/sql itself is only that of the context. ended: the context had ended
// before. The log is slog.Default: no Connector has seen the call.
func waitedAbove(db *sql.DB, scope *task.Scope, ended bool, err error) error {
	s := db.Stats()
	if ended || err != scope.Err() || s.MaxOpenConnections == 0 || scope.Reached() {
		return err
	}
	if since, due := waits.Due(); due {
		slog.Warn("pooldriver: InTx has waited in database/sql until its context ended, because of SetMaxOpenConns; do not call SetMaxOpenConns: pool_max_conns bounds the connections", "max_open_conns", s.MaxOpenConnections, "others", since)
	}
	return fmt.Errorf("pooldriver: InTx has waited in database/sql, because SetMaxOpenConns(%d) lets it give no further connection, and a transaction or statement inside another one needs one; do not call SetMaxOpenConns: pool_max_conns bounds the connections: %w", s.MaxOpenConnections, err)
}

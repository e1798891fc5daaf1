package doctor

import (
	"context"
	"fmt"
)

// sqlite examines a database in a file, or in memory.
func (e *exam) sqlite(ctx context.Context) {
	e.set = map[string]string{}
	for name, query := range map[string]string{"version": "SELECT sqlite_version()", "journal_mode": "PRAGMA journal_mode", "busy_timeout": "PRAGMA busy_timeout"} {
		var value string
		if err := e.conn.QueryRowContext(ctx, query).Scan(&value); err != nil {
			e.unknown("server", "what SQLite says of itself", err)
			return
		}
		e.set[name] = value
	}
	e.Add(Finding{
		Level: OK, Check: "server", Found: fmt.Sprintf("SQLite %s: there is no server, and no limit of connections", e.set["version"]),
		Follows: "one connection writes at a time; more connections only help those that read",
	})
}

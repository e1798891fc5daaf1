package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// sqlite examines a database in a file, or in memory.
func (e *exam) sqlite(ctx context.Context) {
	var version, journal string
	var busy int
	for query, into := range map[string]any{"SELECT sqlite_version()": &version, "PRAGMA journal_mode": &journal, "PRAGMA busy_timeout": &busy} {
		if err := e.conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			e.unknown("server", "what SQLite says of itself", err)
			return
		}
	}
	e.Add(Finding{
		Level: OK, Check: "server", Found: "SQLite " + version + ": there is no server, and no limit of connections",
		Follows: "one connection writes at a time; more connections only help those that read",
	})
	line := Finding{Level: OK, Check: "journal_mode", Found: "journal_mode of the file is " + journal}
	if set := setsJournal.FindString(e.dsn); set != "" {
		line.Found += ", and the DSN sets it: " + strings.TrimSuffix(set, "&")
	} else if journal != "wal" && journal != "memory" && e.plan.Need() > 1 {
		line.Level = Warn
		line.Follows = "whoever writes waits for everybody who reads, and the other way round"
		line.Type = "_pragma=journal_mode(WAL)"
	}
	e.Add(line)
	line = Finding{Level: OK, Check: "busy_timeout", Found: "busy_timeout is " + inspect.Brief(time.Duration(busy)*time.Millisecond)}
	if busy == 0 {
		line.Level = Warn
		line.Follows = "a statement that meets a lock fails at once, with \"database is locked\""
		line.Type = "_pragma=busy_timeout(5000)"
	}
	e.Add(line)
	if e.plan.processes() > 1 && strings.Contains(e.Target, ":memory:") {
		e.Add(Finding{Level: Bad, Check: "memory", Found: "the database is in memory", Follows: "each process has a database of its own", Type: "sqlite:FILE"})
	}
}

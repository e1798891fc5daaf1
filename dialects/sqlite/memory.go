package sqlite

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// In SQLite a database in memory belongs to one connection, so a pool of connections would be a
// pool of databases. Two ways exist to share such a database:
//
//   - Shared cache (cache=shared). It locks tables. A writer that meets an open
//     reader waits in sqlite3_unlock_notify for it, which neither a busy timeout
//     nor a context ends: a program that writes while it reads rows on another
//     connection hangs for good (seen).
//   - The memdb VFS, built into SQLite: a name beginning with a slash is one
//     database for the whole process, locked as a file is. The writer waits for
//     the busy timeout and gets SQLITE_BUSY.
//
// This package uses memdb. It has a price: at most 1 GiB (SQLITE_CONFIG_MEMDB_MAXSIZE, which the
// driver does not let through), a reader that meets a writer's commit waits, and names of files in
// statements need care; see files.go. cache=shared with a name asks for a database that others in
// the process open by the same name; it becomes memdb with that name. But a connection that was not
// opened by this package no longer sees that database.

// privateNames numbers the databases without a name by which others could find them.
var privateNames atomic.Uint64

// defaultBusyTimeout is in milliseconds, for our own form of DSN and for databases in memory: over
// the bare driver these have no second connection that could be busy.
const defaultBusyTimeout = 5000

// busyTimeout is the parameter for the busy timeout, if the DSN has none. The driver applies it
// before any _pragma, so a _pragma wins.
func (q query) busyTimeout() []string {
	if q.has("_busy_timeout", "_timeout") {
		return nil
	}
	return []string{"_busy_timeout=" + strconv.Itoa(defaultBusyTimeout)}
}

// memoryName returns what to open if path and q mean a database in memory.
// inURI: SQLite's own parameters have an effect.
func memoryName(path string, q query, inURI bool) (string, bool) {
	memdb := q.values.Get("vfs") == "memdb"
	modeMemory := inURI && q.values.Get("mode") == "memory"
	if path != "" && path != ":memory:" && !modeMemory && !memdb {
		return "", false
	}
	name := "/pooldriver/private/" + strconv.FormatUint(privateNames.Add(1), 10)
	switch {
	case memdb && !modeMemory && inURI && strings.HasPrefix(path, "/"):
		name = path // shared by its name already
	case inURI && q.values.Get("cache") == "shared":
		name = "/pooldriver/shared/" + path
	}
	return fileURI(name) + "?" + strings.Join(q.memoryParams(inURI), "&"), true
}

// memoryParams are the parameters of a database in memory. SQLite's own parameters count only in a
// URI. Parameters about files have no meaning there either, but memdb gets them.
func (q query) memoryParams(inURI bool) []string {
	params := append([]string{"vfs=memdb"}, q.busyTimeout()...)
	for _, part := range q.rest {
		key, value, _ := strings.Cut(part, "=")
		key, _ = url.QueryUnescape(key)
		heard := inURI && key == "mode" && value != "memory"
		if key == "vfs" || slices.Contains(uriParameters, key) && !heard {
			continue
		}
		params = append(params, part)
	}
	return params
}

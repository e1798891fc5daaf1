package anysqlite

import (
	"context"
	"database/sql/driver"
	"os"
	"path/filepath"
	"sync"

	"github.com/pooldriver/pooldriver/internal/fairlock"
)

// Connections to one file are opened and closed one at a time, in the process. The last one
// that closes a file with a write-ahead log copies the log into the file and removes it
// (https://sqlite.org/wal.html, "the WAL file"). If two connections close at the same time, each
// finds the other, and neither copies. While the last connection copies, the file is locked: a
// connection that is opened meanwhile would get SQLITE_BUSY, although the program has never used
// two connections at a time. Statements wait for none of this.

// turns has a lock for each file that somebody opens or closes.
var turns struct {
	mu    sync.Mutex
	files map[string]*turn
}

type turn struct {
	fairlock.Mutex
	wanted int // how many want the lock; protected by turns.mu
}

// takeTurn waits until nobody else opens or closes file, which is not empty. done ends the
// turn.
func takeTurn(ctx context.Context, file string) (done func(), err error) {
	turns.mu.Lock()
	if turns.files == nil {
		turns.files = make(map[string]*turn)
	}
	t := turns.files[file]
	if t == nil {
		t = &turn{}
		turns.files[file] = t
	}
	t.wanted++
	turns.mu.Unlock()
	leave := func() {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		if t.wanted--; t.wanted == 0 {
			delete(turns.files, file)
		}
	}
	if err := t.Lock(ctx); err != nil {
		leave()
		return nil, err
	}
	return func() { t.Unlock(); leave() }, nil
}

// realPath is the same path for all links that lead to a file. A file that does not exist yet is
// known by its directory.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// join makes a connection take part in the write-ahead log of its file, if the file has one. SQLite
// opens a file with the first statement: a connection that closes before would not know of this
// connection, and would lock the file as the last connection does.
func join(ctx context.Context, conn driver.Conn, file string) {
	if _, err := os.Stat(file + "-wal"); err == nil {
		_, _ = firstRow(ctx, conn, "PRAGMA schema_version") // the first statement reports errors
	}
}

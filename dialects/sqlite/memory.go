package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	sqlitedriver "modernc.org/sqlite"
)

// In SQLite a database in memory belongs to one connection, unless its name is shared
// (cache=shared). A pool of connections would be a pool of databases. So a database without a shared
// name gets one that nobody else knows. A shared name stays as it is written: others in the process find
// the database by it, also by the driver alone.
//
// Connections with a shared cache lock tables. A statement waits for a lock as long as its context
// lasts, and no busy timeout counts. So a write under open rows of the same table would wait for
// ever in one goroutine; see Traits.RowsBlockWrites.
//
// docs/adr/0027-databases-in-memory-have-a-shared-cache.md has the reasons against memdb, the other
// way to share such a database.

// privateNames numbers the databases without a name by which others could find them.
var privateNames atomic.Uint64

// privateName is the name of another database, without its parameters.
func privateName() string {
	return "file:pooldriver-private-" + strconv.FormatUint(privateNames.Add(1), 10)
}

// privateParams are the parameters of a private database. Outside of a URI the program's mode and cache
// mean nothing, and those about files mean nothing in memory.
func (q query) privateParams() []string {
	return append([]string{"mode=memory", "cache=shared"}, slices.DeleteFunc(q.rest, func(part string) bool {
		key, _, _ := strings.Cut(part, "=")
		key, _ = url.QueryUnescape(key)
		return slices.Contains(uriParameters, key)
	})...)
}

// inMemory reports whether a database is in memory. inURI: SQLite's own parameters have an effect.
func (q query) inMemory(path string, inURI bool) bool {
	return path == "" || path == ":memory:" || q.values.Get("vfs") == "memdb" || inURI && q.values.Get("mode") == "memory"
}

// isShared reports whether all connections with the name see one database in memory, or whether
// it does not matter, because they cannot write to it.
func (q query) isShared(path string, inURI bool) bool {
	mode := q.values.Get("mode")
	switch {
	case inURI && q.has("mode") && mode != "memory" && mode != "rw" && mode != "rwc":
		return true
	case inURI && q.values.Get("cache") == "shared":
		return path != "" // without a name it is a temporary file
	}
	return strings.HasPrefix(path, "/") && q.values.Get("vfs") == "memdb" && !(inURI && mode == "memory")
}

// driverConn is what the driver's connections have. Raw finds all of it on a memoryConn, too.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Execer //nolint:staticcheck // the driver has it
	driver.ExecerContext
	driver.Pinger
	driver.Queryer //nolint:staticcheck // the driver has it
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator

	sqlitedriver.AuthorizerRegisterer
	sqlitedriver.DBStatus
	sqlitedriver.FileControl
	sqlitedriver.HookRegisterer
	ColumnInfo(query string) ([]sqlitedriver.ColumnInfo, error)
	Deserialize(buf []byte) error
	IsReadOnly(schema string) (bool, error)
	NewBackup(dstURI string) (*sqlitedriver.Backup, error)
	NewRestore(srcURI string) (*sqlitedriver.Backup, error)
	Serialize() ([]byte, error)
}

// memoryConn is what Raw lends of a connection to a database in memory.
type memoryConn struct {
	driverConn
	name string // of the database
}

// lentConn is what Raw lends of a connection to the database with this name.
func lentConn(name string, conn driver.Conn) (driver.Conn, error) {
	c, ok := conn.(driverConn)
	if !ok {
		return nil, fmt.Errorf("the %T of this version of modernc.org/sqlite lacks a method; use the version in pooldriver's go.mod", conn)
	}
	return &memoryConn{c, name}, nil
}

// Deserialize replaces the database of all connections. The driver's Deserialize would make
// another database, which only this connection sees and which ends with it.
func (c *memoryConn) Deserialize(buf []byte) (err error) {
	from, err := registeredDriver().Open(":memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	source, ok := from.(driverConn)
	if !ok {
		return fmt.Errorf("deserialize: a connection hook has replaced the connection by a %T", from)
	}
	if err := source.Deserialize(buf); err != nil {
		return err
	}
	backup, err := source.NewBackup(c.name)
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		more, err = backup.Step(-1)
	}
	return errors.Join(err, backup.Finish())
}

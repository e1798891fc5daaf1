package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"

	sqlitedriver "modernc.org/sqlite"

	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// SQLite opens the file that ATTACH or VACUUM INTO names by the VFS of the connection's
// first database. The VFS of a database in memory is memdb: SQLite would make another database in
// memory and write no file, without an error. A URI can name its own VFS. So on these connections
// every such expression becomes part of a larger expression, which makes a URI of its value. SQLite
// evaluates the whole, so parameters and computed names work as well.

// fileVFS is the VFS by which the bare driver would open further files. It is empty if that VFS is
// memdb.
func (q query) fileVFS() string {
	switch vfs := q.values.Get("vfs"); {
	case vfs == "memdb":
		return ""
	case vfs != "":
		return vfs
	case runtime.GOOS == "windows":
		return "win32" // SQLite's default there
	}
	return "unix"
}

// filesBy returns a text whose names of files are opened by a VFS.
func filesBy(vfs, query string) string {
	return classifier.MapFiles(query, func(expr string) string {
		// In a URI, + is no space, and the last vfs counts: a vfs that the program names.
		value := strings.ReplaceAll(url.QueryEscape(vfs), "+", "%20")
		return fmt.Sprintf(uriOfFile, "?vfs="+value+"&", expr)
	})
}

// uriOfFile makes a URI of a name, as fileURI does, and puts a parameter before those of
// a URI. A # ends a URI. NULL stays NULL.
const uriOfFile = `(SELECT rtrim(substr(uri, 1, mark-1) || '%s' || substr(uri, mark+1), '&') FROM (` +
	`SELECT uri, instr(uri || '?', '?') AS mark FROM (` +
	`SELECT CASE WHEN name GLOB 'file:*' THEN substr(name, 1, instr(name || '#', '#')-1) ` +
	`ELSE 'file:' || iif(name GLOB '//*', '//', '') || ` +
	`replace(replace(replace(name, '%%', '%%25'), '?', '%%3f'), '#', '%%23') END AS uri ` +
	`FROM (SELECT %s AS name))))`

// driverConn is what the driver's connections have. Raw and AfterConnect find all of it on
// a memoryConn, too.
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

// memoryConn is a connection to a database in memory on which the name of a file means a
// file.
type memoryConn struct {
	driverConn
	vfs string // of files
}

// withFilesBy makes a memoryConn of conn. It closes conn if it cannot.
func withFilesBy(vfs string, conn driver.Conn) (driver.Conn, error) {
	c, ok := conn.(driverConn)
	if !ok {
		err := fmt.Errorf("the %T of this version of modernc.org/sqlite lacks a method; use the version in pooldriver's go.mod", conn)
		return nil, errors.Join(err, conn.Close())
	}
	return &memoryConn{c, vfs}, nil
}

func (c *memoryConn) Prepare(query string) (driver.Stmt, error) {
	return c.driverConn.Prepare(filesBy(c.vfs, query))
}

func (c *memoryConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.driverConn.PrepareContext(ctx, filesBy(c.vfs, query))
}

func (c *memoryConn) Exec(query string, args []driver.Value) (driver.Result, error) {
	return c.driverConn.Exec(filesBy(c.vfs, query), args)
}

func (c *memoryConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.driverConn.ExecContext(ctx, filesBy(c.vfs, query), args)
}

func (c *memoryConn) Query(query string, args []driver.Value) (driver.Rows, error) {
	return c.driverConn.Query(filesBy(c.vfs, query), args)
}

func (c *memoryConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.driverConn.QueryContext(ctx, filesBy(c.vfs, query), args)
}

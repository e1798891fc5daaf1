package anysqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
)

var _ dialects.Recompiler = (*Session)(nil)

// SQLite compiles a statement with the connection's copy of the schema. That copy may be old if
// another connection has changed the schema. SQLite finds this when the statement begins to run,
// and after some errors of the compilation (Parse.checkSchema: "no such table"). After others it
// does not look: ALTER TABLE … RENAME, "index … already exists", "table t has 1 columns but 2 values
// were supplied".

// sqlError is SQLITE_ERROR: among others, the statement does not compile.
const sqlError = 1

// unknownTable is the question for a table that does not exist. Before SQLite says so, it compares
// its copies of all schemas with the files, and drops the copies that are old.
const unknownTable = `SELECT 1 FROM "pooldriver: is the schema old?"`

// Recompiles looks whether query failed because it did not compile. A script is judged by its first
// statement: if that one compiles, it may have been executed.
func (s *Session) Recompiles(ctx context.Context, query string, failed error, complete func()) bool {
	if ctx.Err() != nil || !isSQLError(failed) {
		return false
	}
	err := s.compile(ctx, query)
	complete()
	if err == nil || err.Error() != failed.Error() {
		return false
	}
	_ = s.compile(ctx, unknownTable)
	return s.compile(ctx, query) == nil
}

// isSQLError reports whether an error is SQLITE_ERROR, or may be: the codes of some drivers are
// not known.
func isSQLError(err error) bool {
	var e interface{ Code() int } // modernc.org/sqlite
	if errors.As(err, &e) {
		return e.Code()&0xff == sqlError
	}
	return err != driver.ErrSkip && !errors.Is(err, driver.ErrBadConn) && !isBusy(err)
}

func (s *Session) compile(ctx context.Context, query string) error {
	conn := driverconn.New(s.Conn())
	stmt, err := conn.Prepare(ctx, query)
	if err != nil {
		return err
	}
	return stmt.Close()
}

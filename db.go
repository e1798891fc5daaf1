package pooldriver

import (
	"context"
	"database/sql"
	"reflect"

	"github.com/pooldriver/pooldriver/internal/rowwatch"
)

// DB is a *sql.DB whose QueryRowContext starts no goroutine. For each query whose context can end,
// database/sql starts a goroutine that waits for this end, to close the rows. Its start wakes an idle
// processor, which takes longer than the rest of what lies between the program and the driver. With a DB over
// a Connector, a function that the context calls when it ends (context.AfterFunc) closes the rows. Everything
// else is as with the *sql.DB: values, errors, statistics, and when the connection goes back. docs/performance.md
// has the figures.
//
//	db := pooldriver.DB{DB: sql.OpenDB(connector)}
//
// All other methods are those of the *sql.DB. QueryContext is, too: a program may scan its rows into
// sql.RawBytes, and only database/sql knows when it may close such rows. Transactions, *sql.Conn and *sql.Stmt
// start their goroutines as ever. If a wrapper between database/sql and the Connector changes the context, as
// those of tracing libraries do, or if there is no Connector, QueryRowContext is that of the *sql.DB, too.
//
// A DB is as safe for concurrent use as its *sql.DB. Give it to what takes an interface, such as the DBTX of
// sqlc. InTx and Raw take the *sql.DB: db.DB.
type DB struct{ *sql.DB }

// QueryRowContext is that of the *sql.DB, without the goroutine.
func (db DB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if rowsField == nil || ctx.Done() == nil {
		return db.DB.QueryRowContext(ctx, query, args...)
	}
	q := &rowwatch.Context{Context: ctx}
	row := db.DB.QueryRowContext(q, query, args...)
	if row.Err() == nil {
		// Row.Scan allows another goroutine to close the rows, as it allows that of database/sql.
		q.Watch(func() { _ = rowsOf(row).Close() })
	}
	return row
}

// rowsField finds the rows of a *sql.Row. nil: database/sql keeps them in another way, so QueryRowContext is
// that of the *sql.DB. TestARowHasItsRows fails on such a release of Go.
var rowsField = func() []int {
	f, _ := reflect.TypeFor[sql.Row]().FieldByName("rows")
	if f.Type != reflect.TypeFor[*sql.Rows]() {
		return nil
	}
	return f.Index
}()

// rowsOf is the rows of row, which has no error.
func rowsOf(row *sql.Row) *sql.Rows {
	return (*sql.Rows)(reflect.ValueOf(row).Elem().FieldByIndex(rowsField).UnsafePointer())
}

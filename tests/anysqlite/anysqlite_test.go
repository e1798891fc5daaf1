// Package anysqlite wraps a driver of SQLite in a program that links no dialect of SQLite.
package anysqlite

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
)

// TestWrapOfADriverOfSQLiteNamesTheMissingImport: Err does, before the first statement, and then each
// statement. integration/sqlites and integration/mattn have the import, and other drivers.
func TestWrapOfADriverOfSQLiteNamesTheMissingImport(t *testing.T) {
	driver, err := sqlite.NewConnector(":memory:")
	require.NoError(t, err)
	c := pooldriver.Wrap(driver)
	const line = `add import _ "github.com/pooldriver/pooldriver/dialects/anysqlite"`
	require.ErrorContains(t, c.Err(), line)
	db := sql.OpenDB(c)
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.ErrorContains(t, err, line)
	require.ErrorContains(t, db.Ping(), line)
	require.NoError(t, db.Close())
}

//go:build odbc && cgo

package odbc_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/odbc"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
)

func sqliteString(t testing.TB) string {
	return "Driver=SQLite3;Database=" + filepath.Join(t.TempDir(), "x.db") + ";Timeout=5000"
}

func TestSQLiteOverODBCBehavesAsTheBareDriver(t *testing.T) {
	conformance.Run(t, conformance.OverODBC(conformance.SQLiteOverODBC(),
		func(t testing.TB) *sql.DB {
			db, err := sql.Open("odbc", sqliteString(t))
			require.NoError(t, err)
			return db
		},
		func(t testing.TB) *sql.DB { return sql.OpenDB(pooldriver.New("odbc:" + sqliteString(t))) }))
}

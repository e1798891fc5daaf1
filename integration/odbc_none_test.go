//go:build !odbc || !cgo

package integration

import (
	"database/sql"
	"testing"
)

// Without the build tag there is no way over ODBC.

func eachServerOverODBC(*testing.T, func(*testing.T, stage)) {}

func (s stage) overODBC() []stage { return nil }

func sqliteOverODBC(*testing.T, func(*testing.T, stage)) {}

func (s stage) odbcURL(...string) string { panic("built without the tag odbc") }

func (s stage) openBareODBC(testing.TB, ...string) *sql.DB { panic("built without the tag odbc") }

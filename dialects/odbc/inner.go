//go:build odbc && cgo

package odbc

import (
	"database/sql/driver"
	"reflect"
	"unsafe"

	odbcdriver "github.com/alexbrainman/odbc"
)

// handleOf returns the driver's statement of ODBC below its driver.Stmt, which
// has the memory of its columns and is not reachable from there otherwise. It
// is nil where a version of the driver keeps it elsewhere, or the statement is
// somebody else's; a test fails then.
func handleOf(si driver.Stmt) *odbcdriver.ODBCStmt {
	s, ok := si.(*odbcdriver.Stmt)
	if !ok {
		return nil
	}
	field := reflect.ValueOf(s).Elem().FieldByName("os")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*odbcdriver.ODBCStmt]() {
		return nil
	}
	// The type was checked, and the statement is reachable through si.
	return *(**odbcdriver.ODBCStmt)(unsafe.Pointer(field.UnsafeAddr()))
}

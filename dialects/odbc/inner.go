//go:build odbc && cgo

package odbc

import (
	"database/sql/driver"
	"reflect"
	"unsafe"

	odbcdriver "github.com/alexbrainman/odbc"
)

// handleOf returns the driver's ODBC statement below its driver.Stmt. The ODBC statement has the
// memory of the columns, and no other way leads to it. handleOf returns nil if a version of the
// driver has it in another field, or if the statement belongs to another driver; a test fails then.
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

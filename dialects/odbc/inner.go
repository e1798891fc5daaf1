//go:build odbc && cgo

package odbc

import (
	"database/sql/driver"
	"reflect"
	"unsafe"

	odbcdriver "github.com/alexbrainman/odbc"

	"github.com/pooldriver/pooldriver/internal/driverfield"
)

// statementField has the driver's ODBC statement, with the memory of the columns: no other way leads to it.
var statementField = driverfield.Of[*odbcdriver.ODBCStmt](reflect.TypeFor[odbcdriver.Stmt](), "os",
	"values that are longer than their column's declared length are cut off")

// handleOf returns the driver's ODBC statement below its driver.Stmt. handleOf returns nil if a release of
// the driver has it in another field, or if the statement belongs to another driver.
func handleOf(si driver.Stmt) *odbcdriver.ODBCStmt {
	s, ok := si.(*odbcdriver.Stmt)
	if !ok || !statementField.Known() {
		return nil
	}
	return *statementField.In(unsafe.Pointer(s))
}

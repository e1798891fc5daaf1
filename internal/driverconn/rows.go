package driverconn

import (
	"database/sql/driver"
	"reflect"
)

// ColumnType is what a driver tells about a column of a result set.
type ColumnType struct {
	ScanType                           reflect.Type
	DatabaseTypeName                   string
	Length, Precision, Scale           int64
	Nullable                           bool
	HasLength, HasNullable, HasDecimal bool
}

// NoColumnType is the answer for a driver that tells nothing about a column.
func NoColumnType() ColumnType { return ColumnType{ScanType: reflect.TypeFor[any]()} }

// ColumnTypeOf asks the driver. If the driver has no answer, ColumnTypeOf answers as database/sql
// does.
func ColumnTypeOf(rows driver.Rows, i int) ColumnType {
	t := NoColumnType()
	if p, ok := rows.(driver.RowsColumnTypeScanType); ok {
		t.ScanType = p.ColumnTypeScanType(i)
	}
	if p, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		t.DatabaseTypeName = p.ColumnTypeDatabaseTypeName(i)
	}
	if p, ok := rows.(driver.RowsColumnTypeLength); ok {
		t.Length, t.HasLength = p.ColumnTypeLength(i)
	}
	if p, ok := rows.(driver.RowsColumnTypeNullable); ok {
		t.Nullable, t.HasNullable = p.ColumnTypeNullable(i)
	}
	if p, ok := rows.(driver.RowsColumnTypePrecisionScale); ok {
		t.Precision, t.Scale, t.HasDecimal = p.ColumnTypePrecisionScale(i)
	}
	return t
}

// HasNextResultSet asks the driver whether another result set follows.
func HasNextResultSet(rows driver.Rows) bool {
	n, ok := rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

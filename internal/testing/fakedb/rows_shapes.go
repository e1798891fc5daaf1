package fakedb

import (
	"database/sql/driver"
	"reflect"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// The interfaces of rows contain driver.Rows; the shapes need the rest alone.
type (
	rowsBase = driver.Rows
	nextSet  interface {
		HasNextResultSet() bool
		NextResultSet() error
	}
	scanTyped  interface{ ColumnTypeScanType(index int) reflect.Type }
	typeName   interface{ ColumnTypeDatabaseTypeName(index int) string }
	typeLength interface{ ColumnTypeLength(index int) (int64, bool) }
	nullable   interface {
		ColumnTypeNullable(index int) (nullable, ok bool)
	}
	scale interface {
		ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool)
	}
	columnScanner interface {
		NextRow() error
		ScanColumn(ctx driverconn.ScanContext, index int, dest any) error
	}
)

var rowsShapes = map[Features]func(*rows) driver.Rows{
	RowsFeatures: func(r *rows) driver.Rows { return r },
	None:         func(r *rows) driver.Rows { return struct{ rowsBase }{r} },

	RowsNextResultSet: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			nextSet
		}{r, r}
	},
	ColumnTypeScanType: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			scanTyped
		}{r, r}
	},
	ColumnTypeDatabaseTypeName: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			typeName
		}{r, r}
	},
	ColumnTypeLength: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			typeLength
		}{r, r}
	},
	ColumnTypeNullable: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			nullable
		}{r, r}
	},
	ColumnTypePrecisionScale: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			scale
		}{r, r}
	},
	RowsColumnScanner: func(r *rows) driver.Rows {
		return struct {
			rowsBase
			columnScanner
		}{r, r}
	},

	RowsFeatures &^ RowsNextResultSet: func(r *rows) driver.Rows {
		return struct {
			*rows
			nextSet
		}{rows: r}
	},
	RowsFeatures &^ ColumnTypeScanType: func(r *rows) driver.Rows {
		return struct {
			*rows
			scanTyped
		}{rows: r}
	},
	RowsFeatures &^ ColumnTypeDatabaseTypeName: func(r *rows) driver.Rows {
		return struct {
			*rows
			typeName
		}{rows: r}
	},
	RowsFeatures &^ ColumnTypeLength: func(r *rows) driver.Rows {
		return struct {
			*rows
			typeLength
		}{rows: r}
	},
	RowsFeatures &^ ColumnTypeNullable: func(r *rows) driver.Rows {
		return struct {
			*rows
			nullable
		}{rows: r}
	},
	RowsFeatures &^ ColumnTypePrecisionScale: func(r *rows) driver.Rows {
		return struct {
			*rows
			scale
		}{rows: r}
	},
	RowsFeatures &^ RowsColumnScanner: func(r *rows) driver.Rows {
		return struct {
			*rows
			columnScanner
		}{rows: r}
	},

	likePgx & RowsFeatures: func(r *rows) driver.Rows {
		return struct {
			*rows
			nextSet
			nullable
		}{rows: r}
	},

	likeMySQL & RowsFeatures: func(r *rows) driver.Rows {
		return struct {
			*rows
			typeLength
			columnScanner
		}{rows: r}
	},
}

//go:build go1.27

package driverconn

import (
	"database/sql"
	"database/sql/driver"
)

// ColumnScanner is rows that scan their columns themselves. database/sql reads them by
// NextRow and ScanColumn, and never calls Next.
type ColumnScanner = driver.RowsColumnScanner

// ScanContext is what database/sql hands to ScanColumn, for ConvertAssign.
type ScanContext = driver.ScanContext

// ColumnScannerOf returns rows if they scan their columns themselves, else nil.
func ColumnScannerOf(rows driver.Rows) ColumnScanner {
	s, _ := rows.(ColumnScanner)
	return s
}

// ConvertAssign is database/sql's conversion of a driver's value to a destination of Scan.
func ConvertAssign(ctx ScanContext, dest any, value driver.Value) error {
	return sql.ConvertAssign(ctx, dest, value)
}

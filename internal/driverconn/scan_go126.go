//go:build !go1.27

package driverconn

import (
	"database/sql/driver"
	"errors"
)

// ColumnScanner stands for driver.RowsColumnScanner, which is new in Go 1.27.
type ColumnScanner interface {
	driver.Rows
	NextRow() error
	ScanColumn(ctx ScanContext, index int, dest any) error
}

// ScanContext stands for driver.ScanContext.
type ScanContext struct{}

// ColumnScannerOf returns nil: before Go 1.27 database/sql reads all rows by Next, also rows that
// have the methods.
func ColumnScannerOf(driver.Rows) ColumnScanner { return nil }

// ConvertAssign is never called: nothing returns a ColumnScanner.
func ConvertAssign(ScanContext, any, driver.Value) error { return errors.ErrUnsupported }

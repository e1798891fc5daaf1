package pooldriver

import (
	"database/sql/driver"
	"io"
	"reflect"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// Columns, Next and so on pass everything on, io.EOF unwrapped.

func (r *rows) Columns() []string {
	if names := r.columns; names != nil {
		r.columns = nil // theirs now: who asks again gets the driver's answer
		return names
	}
	if !r.lock() {
		return r.current().Columns
	}
	defer r.unlock()
	return r.Rows.Columns()
}

// Next reads a row. dest is nil for NextRow.
func (r *rows) Next(dest []driver.Value) error {
	if !r.lock() {
		if b := r.Buffer(); b != nil {
			return b.Next(dest)
		}
		return r.why()
	}
	defer r.unlock()
	err := r.Rows.Next(dest)
	if err == io.EOF && r.Prefix() == nil {
		r.over, r.more = true, r.Rows.HasNextResultSet()
	}
	return err
}

func (r *rows) HasNextResultSet() bool {
	if r.over {
		return r.more
	}
	if !r.lock() {
		return r.current().More
	}
	defer r.unlock()
	return r.Rows.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	r.columns, r.over = nil, false
	if !r.lock() {
		if b := r.Buffer(); b != nil {
			return b.NextSet()
		}
		return r.why()
	}
	defer r.unlock()
	return r.Rows.NextResultSet()
}

// current is the result set that is read, when the driver is not asked any more.
func (r *rows) current() *rowbuffer.Set {
	if b := r.Buffer(); b != nil {
		return b.Current()
	}
	return new(rowbuffer.Set)
}

// column answers what is known of a column's type.
func (r *rows) column(i int) driverconn.ColumnType {
	if !r.lock() {
		return r.current().Column(i)
	}
	defer r.unlock()
	return r.Column(i)
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type { return r.column(i).ScanType }

func (r *rows) ColumnTypeDatabaseTypeName(i int) string { return r.column(i).DatabaseTypeName }

func (r *rows) ColumnTypeLength(i int) (length int64, ok bool) {
	t := r.column(i)
	return t.Length, t.HasLength
}

func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	t := r.column(i)
	return t.Nullable, t.HasNullable
}

func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	t := r.column(i)
	return t.Precision, t.Scale, t.HasDecimal
}

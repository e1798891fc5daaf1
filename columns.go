package pooldriver

import (
	"reflect"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// What rows tell of their columns: the driver's answer, or what was kept of it with rows
// that are in memory.

// now is the result set that is being read, when the driver is not asked any
// more.
func (r *rows) now() *rowbuffer.Set {
	if b := r.ahead.Load(); b != nil {
		return b.Current()
	}
	return new(rowbuffer.Set)
}

// column answers what is known of a column's type.
func (r *rows) column(i int) driverconn.ColumnType {
	if !r.use() {
		return r.now().Column(i)
	}
	defer r.unuse()
	if r.prefix != nil {
		return r.prefix.Current().Column(i)
	}
	return driverconn.ColumnTypeOf(r.real, i)
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

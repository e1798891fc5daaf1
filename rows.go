package pooldriver

import (
	"database/sql/driver"
	"io"
	"reflect"
)

// rows are the driver's rows. Optional methods that the driver lacks get the
// answers that database/sql gives in that case.
type rows struct {
	real  driver.Rows
	owner *realConn
	stmt  *realStmt // whose rows they are; nil if the text was not prepared
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

func (r *rows) Columns() []string { return r.real.Columns() }

// Next passes everything on, io.EOF unwrapped. A call that panics leaves the
// connection marked, as in try.call.
func (r *rows) Next(dest []driver.Value) error {
	r.owner.running++
	err := r.real.Next(dest)
	r.owner.running--
	return err
}

// Close closes the driver's rows. database/sql calls it once.
func (r *rows) Close() error {
	r.owner.running++
	err := r.real.Close()
	r.owner.running--
	if r.stmt != nil {
		r.stmt.open--
		r.owner.stmts.done(r.stmt)
		r.stmt = nil
	}
	return err
}

func (r *rows) HasNextResultSet() bool {
	n, ok := r.real.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	if n, ok := r.real.(driver.RowsNextResultSet); ok {
		r.owner.running++
		err := n.NextResultSet()
		r.owner.running--
		return err
	}
	return io.EOF
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if p, ok := r.real.(driver.RowsColumnTypeScanType); ok {
		return p.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if p, ok := r.real.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return p.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *rows) ColumnTypeLength(i int) (length int64, ok bool) {
	if p, ok := r.real.(driver.RowsColumnTypeLength); ok {
		return p.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if p, ok := r.real.(driver.RowsColumnTypeNullable); ok {
		return p.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if p, ok := r.real.(driver.RowsColumnTypePrecisionScale); ok {
		return p.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

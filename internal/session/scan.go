package session

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// Rows that scan their columns themselves (driver.RowsColumnScanner, since Go 1.27).
// database/sql then calls NextRow, and ScanColumn for the present row, as often as the
// program scans it: the row has to be there until the next NextRow, also when the rows have
// been read ahead in between.

// Scans reports whether the driver's rows scan their columns themselves.
func (r *Rows) Scans() bool { return r.scanner != nil }

// Scan scans a column of the owner's row. If done is false, the caller scans column after it has
// unlocked the session: this scan may call a Scanner of the program, which may run a statement of
// the same task.
func (r *Rows) Scan(ctx driverconn.ScanContext, i int, dest any) (done bool, column rowbuffer.Column, err error) {
	if r.prefix != nil {
		return false, r.prefix.Column(i), nil
	}
	if callsScanner(dest) {
		var value any
		if err := r.scanColumn(driverconn.ScanContext{}, i, &value); err != nil {
			return true, column, err
		}
		return false, rowbuffer.ValueColumn(value), nil
	}
	err = r.scanColumn(ctx, i, dest)
	if raw, ok := dest.(*sql.RawBytes); ok && err == nil && len(*raw) > 0 && r.mayLoseBytes() {
		*raw = r.copyBytes(*raw)
	}
	return true, column, err
}

// scanColumn calls the driver.
func (r *Rows) scanColumn(ctx driverconn.ScanContext, i int, dest any) error {
	r.session.running++
	err := r.scanner.ScanColumn(ctx, i, dest)
	r.session.running--
	return err
}

// callsScanner reports whether database/sql's conversion to dest may call a method of the
// program's.
func callsScanner(dest any) bool {
	switch dest.(type) {
	case nil, *string, *[]byte, *sql.RawBytes, *any, *bool, *int, *int64, *float64, *time.Time,
		*sql.NullString, *sql.NullInt64, *sql.NullInt32, *sql.NullInt16, *sql.NullByte, *sql.NullFloat64, *sql.NullBool, *sql.NullTime:
		return false
	}
	t := reflect.TypeOf(dest)
	if v := reflect.ValueOf(dest); v.Kind() == reflect.Pointer && v.IsNil() {
		return false // the driver may refuse it before
	}
	for t.Kind() == reflect.Pointer && t.Name() == "" { // a pointer type with a name may point to itself
		if t.Implements(scannerType) {
			return true
		}
		t = t.Elem()
	}
	return t.Implements(scannerType)
}

var scannerType = reflect.TypeFor[sql.Scanner]()

// capture begins to read a result set ahead.
func (r *Rows) capture() {
	var columns rowbuffer.Columns
	if d, ok := r.session.server.(dialects.RowDetacher); ok && r.scanner != nil {
		if detached := d.DetachColumns(r.real); detached != nil {
			columns = detached
		}
	}
	r.prefix.Capture(r.real, columns)
}

// readDetached reads a row that is read ahead.
func (r *Rows) readDetached(row []driver.Value) error {
	err := r.read(row)
	if err == nil && r.scanner != nil {
		r.detach(func(from driverconn.ColumnScanner) { r.prefix.Detach(from, row) })
	}
	return err
}

// detach calls the driver for a row that is read ahead.
func (r *Rows) detach(copyRow func(from driverconn.ColumnScanner)) {
	r.session.running++
	copyRow(r.scanner)
	r.session.running--
}

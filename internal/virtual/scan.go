package virtual

import (
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// scanningRows are rows whose driver's rows scan their columns themselves: they are a
// driver.RowsColumnScanner, since Go 1.27.
type scanningRows struct{ *rows }

// handedOut is what database/sql gets: rows that scan their columns themselves if the driver's
// rows do so, and otherwise r.
func (r *rows) handedOut() driver.Rows {
	if r.held.Rows.Scans() {
		return scanningRows{r}
	}
	return r
}

// NextRow goes to the next row.
func (r scanningRows) NextRow() error { return r.Next(nil) }

// ScanColumn scans a column of the row that NextRow has reached.
func (r scanningRows) ScanColumn(ctx driverconn.ScanContext, i int, dest any) error {
	done, column, err := r.scan(ctx, i, dest)
	if done {
		return err
	}
	return column.Scan(ctx, dest)
}

// scan is ScanColumn's part that needs the driver, or the buffer.
func (r scanningRows) scan(ctx driverconn.ScanContext, i int, dest any) (done bool, column rowbuffer.Column, err error) {
	if r.held.Lock() {
		defer r.held.Unlock()
		return r.held.Rows.Scan(ctx, i, dest)
	}
	if b := r.held.Rows.Buffer(); b != nil {
		return false, b.Column(i), nil
	}
	// database/sql asks for the name of the column that it could not scan, and does not look
	// whether the column exists.
	r.columns = make([]string, i+1)
	return true, column, r.why()
}

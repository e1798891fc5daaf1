package sandbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// rows are the driver's rows of a statement. Their end is the statement's end. For what the driver
// cannot tell, they give database/sql's own answers.
type rows struct {
	s    *statement
	real driver.Rows
	err  error // of a Next
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

func wrapRows(s *statement, real driver.Rows) driver.Rows {
	r := &rows{s: s, real: real}
	s.c.stage.open[r] = true
	if scanner := driverconn.ColumnScannerOf(real); scanner != nil {
		return &scanningRows{r, scanner}
	}
	return r
}

// beneathRows returns the driver's rows.
func beneathRows(r driver.Rows) driver.Rows {
	switch r := r.(type) {
	case *rows:
		return r.real
	case *scanningRows:
		return r.real
	}
	return r
}

func (r *rows) Columns() []string { return r.real.Columns() }

func (r *rows) Next(dest []driver.Value) error {
	r.s.c.stage.mu.Lock()
	defer r.s.c.stage.mu.Unlock()
	if r.s.ended {
		return errRowsEnded
	}
	return r.read(r.real.Next(dest))
}

// read records how a read has ended. When the rows are over, nothing runs that a request could
// stop.
func (r *rows) read(err error) error {
	switch {
	case err == io.EOF && !driverconn.HasNextResultSet(r.real):
		r.s.over()
	case err != nil && err != io.EOF:
		r.err = err
		if ended := r.s.ctx.Err(); ended != nil {
			return ended
		}
	}
	return err
}

var errRowsEnded = errors.New("sandbox: the test has ended, and its rows were closed")

func (r *rows) HasNextResultSet() bool { return driverconn.HasNextResultSet(r.real) }

func (r *rows) NextResultSet() error {
	n, ok := r.real.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	r.s.c.stage.mu.Lock()
	defer r.s.c.stage.mu.Unlock()
	if r.s.ended {
		return errRowsEnded
	}
	return r.read(n.NextResultSet())
}

// Close closes the driver's rows and ends the statement.
func (r *rows) Close() error {
	st := r.s.c.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.s.ended {
		return nil
	}
	delete(st.open, r)
	closed := r.real.Close()
	err := r.err
	if err == nil {
		err = closed
	}
	if failed := r.s.end(err); failed != nil && r.err == nil {
		return failed
	}
	return closed
}

// closeRows closes the rows that the test has left open: until then nothing else can be executed on
// the connection. The server is asked to send no more of them.
func (st *stage) closeRows() {
	for r := range st.open {
		r.s.ended = true
		r.s.watch.end()
		ended, cancel := context.WithCancel(context.Background())
		w := st.watchOver(ended)
		cancel()
		_ = r.real.Close()
		if w.end() {
			st.absorb()
		}
	}
	clear(st.open)
}

func (r *rows) column(i int) driverconn.ColumnType { return driverconn.ColumnTypeOf(r.real, i) }

func (r *rows) ColumnTypeScanType(i int) reflect.Type   { return r.column(i).ScanType }
func (r *rows) ColumnTypeDatabaseTypeName(i int) string { return r.column(i).DatabaseTypeName }
func (r *rows) ColumnTypeLength(i int) (n int64, known bool) {
	c := r.column(i)
	return c.Length, c.HasLength
}
func (r *rows) ColumnTypeNullable(i int) (nullable, known bool) {
	c := r.column(i)
	return c.Nullable, c.HasNullable
}
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, known bool) {
	c := r.column(i)
	return c.Precision, c.Scale, c.HasDecimal
}

// scanningRows are rows that scan their columns themselves, since Go 1.27.
type scanningRows struct {
	*rows
	scanner driverconn.ColumnScanner
}

func (r *scanningRows) NextRow() error {
	r.s.c.stage.mu.Lock()
	defer r.s.c.stage.mu.Unlock()
	if r.s.ended {
		return errRowsEnded
	}
	return r.read(r.scanner.NextRow())
}

func (r *scanningRows) ScanColumn(ctx driverconn.ScanContext, i int, dest any) error {
	return r.scanner.ScanColumn(ctx, i, dest)
}

// noRows are the rows of a text that begins or ends a transaction.
type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }
func (noRows) Close() error              { return nil }

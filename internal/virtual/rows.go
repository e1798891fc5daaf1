package virtual

import (
	"database/sql/driver"
	"errors"
	"io"
	"reflect"

	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
	"github.com/pooldriver/pooldriver/internal/session"
)

// rows are the virtual rows of a query. They are read under the session's lock, until they
// have been read ahead into memory. database/sql serialises the calls of the rows' owner. If
// the driver lacks an optional method, the rows give the answer that database/sql gives in
// that case.
type rows struct {
	held binding.Rows

	checkout *checkout // the checkout that has opened the rows

	// Answers that database/sql asks for next. They are read while the lock is held
	// anyway.
	columns []string // of this result set, handed out once; nil: the driver is asked
	over    bool     // the owner has come to the end of this result set
	more    bool     // over, and another result set follows
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

var errRowsClosed = errors.New("pooldriver: these rows are closed")

// openRows makes the virtual rows of a query that has just run. first: nothing was executed in the
// checkout before.
func (c *checkout) openRows(st *session.Statement, first bool) *rows {
	r := c.newRows(st.Columns)
	c.held.Open(&r.held, st, first)
	return r
}

// newRows returns virtual rows without a result. columns: see rows.
func (c *checkout) newRows(columns []string) *rows {
	r := c.spare
	if r == nil {
		r = new(rows)
	}
	c.spare = nil
	r.checkout, r.columns = c, columns
	return r
}

// why returns the error of rows that have ended before they were read to their end.
func (r *rows) why() error {
	switch {
	case r.held.Closed() && r.held.Rows.Lost() == nil:
		return errRowsClosed
	case r.held.Rows.Lost() != nil:
		return r.held.Rows.Lost()
	case r.held.IsLent():
		return errLent
	}
	return session.ErrRowsLost
}

// Close closes the driver's rows. database/sql calls it once. If the driver panics, database/sql
// never ends the *sql.Tx or *sql.Conn of the rows, so the checkout refuses further operations:
// above all, no operation may run on another connection. If a function of Raw has the session of the
// rows, the driver's rows are closed when the function has returned.
func (r *rows) Close() error {
	if r.held.Closed() {
		return nil
	}
	c, returned := r.checkout, false
	defer func() {
		if !returned {
			c.refuse(errDriverPanicked)
		}
		c.endEarly()
	}()
	reusable, err := r.held.Close()
	returned = true
	switch {
	case reusable:
		r.recycle()
	case r.held.Rows.Buffer() == nil && r.held.IsLent():
		r.held.Rows.DropPrefix()
		c.loan.later = append(c.loan.later, r.held.CloseAfterLoan)
	}
	return err
}

// Lost implements direct.Rows.
func (r *rows) Lost() error { return r.held.Rows.Lost() }

// recycle keeps closed rows for the next query of their virtual connection, which uses
// their memory again. database/sql never touches rows that it has closed.
func (r *rows) recycle() {
	r.held.Recycle()
	r.columns, r.over, r.more = nil, false, false
	r.checkout.spare = r
}

// Columns, Next and so on pass everything on. They do not wrap io.EOF.

func (r *rows) Columns() []string {
	if names := r.columns; names != nil {
		r.columns = nil // database/sql has the names now: a second call gets the driver's answer
		return names
	}
	if !r.held.Lock() {
		return r.current().Columns
	}
	defer r.held.Unlock()
	return r.held.Rows.Columns()
}

// Next reads a row. dest is nil for NextRow.
func (r *rows) Next(dest []driver.Value) error {
	if !r.held.Lock() {
		if b := r.held.Rows.Buffer(); b != nil {
			return b.Next(dest)
		}
		return r.why()
	}
	defer r.held.Unlock()
	err := r.held.Rows.Next(dest)
	switch {
	case err == nil:
		r.held.CountRow()
	case err != io.EOF:
		return r.held.WithTaskEnd(err)
	case r.held.Rows.Prefix() == nil:
		r.over, r.more = true, r.held.Rows.HasNextResultSet()
	}
	return err
}

func (r *rows) HasNextResultSet() bool {
	if r.over {
		return r.more
	}
	if !r.held.Lock() {
		return r.current().More
	}
	defer r.held.Unlock()
	return r.held.Rows.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	r.columns, r.over = nil, false
	if !r.held.Lock() {
		if b := r.held.Rows.Buffer(); b != nil {
			return b.NextSet()
		}
		return r.why()
	}
	defer r.held.Unlock()
	err := r.held.Rows.NextResultSet()
	if err != nil && err != io.EOF {
		return r.held.WithTaskEnd(err)
	}
	return err
}

// current is the present result set of rows in memory, and empty if the rows are not in memory.
func (r *rows) current() *rowbuffer.Set {
	if b := r.held.Rows.Buffer(); b != nil {
		return b.Current()
	}
	return new(rowbuffer.Set)
}

// column returns the known facts about a column's type.
func (r *rows) column(i int) driverconn.ColumnType {
	if !r.held.Lock() {
		return r.current().Column(i)
	}
	defer r.held.Unlock()
	return r.held.Rows.Column(i)
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

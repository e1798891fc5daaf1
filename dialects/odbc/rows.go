//go:build odbc && cgo

package odbc

import (
	"database/sql/driver"
	"fmt"
	"io"
)

// rows wraps the driver's rows. The driver's rows say after every result set that another one
// follows, so database/sql would keep the connection after the last row. Only a step to the next
// result set shows whether it exists: rows makes this step at the end of each result set.
type rows struct {
	stmt    *stmt
	real    driver.Rows
	columns []string // after look, the driver's columns are those of the next set

	ended     bool  // this result set has ended
	failed    error // the next set could not be read
	exhausted bool  // there is no other set
	closed    bool
}

var _ driver.RowsNextResultSet = (*rows)(nil)

func newRows(s *stmt, real driver.Rows) *rows {
	r := &rows{stmt: s, real: real, columns: real.Columns()}
	s.conn.rows[r] = struct{}{}
	return r
}

func (r *rows) Columns() []string { return r.columns }

func (r *rows) Next(dest []driver.Value) error {
	if r.ended {
		return io.EOF
	}
	c := r.stmt.conn
	if err := c.usable(); err != nil {
		return err
	}
	err := r.real.Next(dest)
	if err == io.EOF {
		r.look()
		return io.EOF
	}
	if err != nil {
		return c.noteError(c.checkError(err))
	}
	return nil
}

// look goes to the next result set, past statements that have none.
func (r *rows) look() {
	r.ended = true
	next, ok := r.real.(driver.RowsNextResultSet)
	for ok {
		err := next.NextResultSet()
		switch {
		case err == nil:
			r.stmt.keepBound()
			return
		case err == io.EOF:
			ok = false
		case err.Error() != noRows:
			c := r.stmt.conn
			r.failed = c.noteError(c.checkError(err))
			return
		}
	}
	r.exhausted = true
}

func (r *rows) HasNextResultSet() bool { return !r.exhausted }

func (r *rows) NextResultSet() error {
	c := r.stmt.conn
	if err := c.usable(); err != nil {
		return err
	}
	if !r.ended {
		r.look()
	}
	switch {
	case r.exhausted:
		return io.EOF
	case r.failed != nil:
		r.exhausted = true
		return r.failed
	}
	r.columns = r.real.Columns()
	r.ended = false
	return nil
}

// Close closes the cursor. After the last result set no cursor is left: the driver returns an error
// for that.
func (r *rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.stmt.conn.usable() != nil {
		return nil // the connection closes what is left
	}
	delete(r.stmt.conn.rows, r)
	err := r.real.Close()
	if r.exhausted && hasState(err, "24000") {
		return nil
	}
	return err
}

// none are the rows of a statement that gives no rows.
type none struct{}

func (none) Columns() []string         { return nil }
func (none) Next([]driver.Value) error { return io.EOF }
func (none) Close() error              { return nil }

// readText reads rows as text; NULL is empty.
func readText(rows driver.Rows) (all [][]string, err error) {
	values := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(values); err {
		case nil:
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
		row := make([]string, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case nil:
			case []byte:
				row[i] = string(v)
			default:
				row[i] = fmt.Sprint(v)
			}
		}
		all = append(all, row)
	}
}

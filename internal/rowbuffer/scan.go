package rowbuffer

import (
	"bytes"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// Rows that scan their columns themselves (driver.RowsColumnScanner) are kept so that they can be
// scanned later. For each column the buffer keeps what the driver scans into an any and, if the
// dialect can use them, the bytes that came from the database.

// Columns are the columns of a result set whose dialect can scan bytes that were copied
// out of the driver's rows: dialects.DetachedColumns.
type Columns interface {
	Raw(i int) []byte
	Scan(i int, raw []byte, dest any) (done bool, err error)
}

// Column is a column of a row in memory, to be scanned once.
type Column struct {
	value driver.Value
	raw   []byte  // nil: the bytes are those of value
	from  Columns // where raw can be scanned; nil: only value is there
	index int
}

// ValueColumn is a column of which only the driver's value is known.
func ValueColumn(value driver.Value) Column { return Column{value: value} }

// scanFailed stands for the value of a column that the driver could not scan into an any.
type scanFailed struct{ err error }

var errNoRow = errors.New("pooldriver: there is no row to scan")

// Scan does what the driver's ScanColumn would have done.
func (c Column) Scan(ctx driverconn.ScanContext, dest any) error {
	if c.from != nil {
		if done, err := c.from.Scan(c.index, c.bytes(), dest); done {
			return err
		}
	}
	if failed, ok := c.value.(scanFailed); ok {
		return failed.err
	}
	return driverconn.ConvertAssign(ctx, dest, c.value)
}

func (c Column) bytes() []byte {
	if c.raw != nil {
		return c.raw
	}
	switch v := c.value.(type) {
	case string:
		return []byte(v)
	case []byte:
		return v
	}
	return nil // NULL
}

// same reports whether a value has the bytes that came from the database.
func same(value driver.Value, raw []byte) bool {
	switch v := value.(type) {
	case string:
		return v == string(raw)
	case []byte:
		return bytes.Equal(v, raw)
	}
	return false
}

// Column is a column of the reader's row. It does not change when the reader goes on.
func (b *Buffer) Column(i int) Column {
	names := len(b.Current().Columns)
	if i < 0 || i >= min(names, len(b.row)) {
		return Column{value: scanFailed{errNoRow}}
	}
	c := Column{value: b.row[i], index: i}
	if len(b.row) > names {
		c.from, c.raw = b.Current().detached, b.row[names].([][]byte)[i]
	}
	return c
}

// Hold copies the driver's row that the reader has reached and may still scan.
func (b *Buffer) Hold(from driverconn.ColumnScanner) {
	b.row = make([]driver.Value, b.last().width)
	b.Detach(from, b.row)
}

// Detach copies the driver's row into row, of the last result set.
func (b *Buffer) Detach(from driverconn.ColumnScanner, row []driver.Value) {
	s := b.last()
	values := row[:len(s.Columns)]
	for i := range values {
		var v any
		if err := from.ScanColumn(driverconn.ScanContext{}, i, &v); err != nil {
			v = scanFailed{err}
		}
		values[i] = v
	}
	if s.detached != nil {
		row[len(values)] = s.raw(values)
	}
}

// raw copies the bytes of the driver's row, if they are not the bytes of its values.
func (s *Set) raw(values []driver.Value) [][]byte {
	raw, size := make([][]byte, len(values)), 0
	for i, v := range values {
		b := s.detached.Raw(i)
		if !same(v, b) {
			raw[i] = b
			size += len(b)
		}
	}
	own := make([]byte, 0, size)
	for i, b := range raw {
		if b == nil {
			continue
		}
		from := len(own)
		own = append(own, b...)
		raw[i] = own[from:len(own):len(own)]
	}
	return raw
}

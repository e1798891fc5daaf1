// Package rowbuffer keeps rows that were read into memory, so that their connection can be used for
// something else. Whoever reads them from the buffer sees what the driver would have given: rows,
// result sets, column types, and an error at the same place.
package rowbuffer

import (
	"database/sql/driver"
	"io"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// Buffer has the result sets of one query, or the rest of them. One goroutine uses it at a time.
type Buffer struct {
	held   *atomic.Int64 // bytes in all buffers
	bytes  int64         // the bytes of this buffer, a part of held
	sets   []*Set
	set    int // the index of the result set that is read
	closed error
	row    []driver.Value // the row that the reader scans its columns from; nil: none
}

// Set is one result set, as far as it was read into memory.
type Set struct {
	Columns []string
	// More is the driver's HasNextResultSet after the last row.
	More bool

	types    []driverconn.ColumnType
	detached Columns        // the dialect's means to scan rows in memory; nil: it has none
	width    int            // number of values of a row: of columns and, if detached, bytes
	values   []driver.Value // of all rows, one after the other
	rows     int            // number of rows in values
	read     int            // number of rows given to the reader
	end      error          // the driver's error after the last row
	next     error          // the driver's error from NextResultSet
}

// New returns an empty buffer, which adds its bytes to held and later subtracts them. The caller
// must call Capture next.
func New(held *atomic.Int64) *Buffer { return &Buffer{held: held} }

// Capture begins a result set with what the driver tells about it before its rows. detached is nil
// unless the rows scan their columns themselves and their dialect can do so later.
func (b *Buffer) Capture(rows driver.Rows, detached Columns) {
	s := &Set{Columns: rows.Columns(), detached: detached}
	s.width = len(s.Columns)
	if detached != nil {
		s.width++
	}
	s.types = make([]driverconn.ColumnType, len(s.Columns))
	for i := range s.types {
		s.types[i] = driverconn.ColumnTypeOf(rows, i)
	}
	b.sets = append(b.sets, s)
}

func (b *Buffer) last() *Set { return b.sets[len(b.sets)-1] }

// Add reads one row into the last result set, and returns about how many bytes it takes.
// After an error nothing is added.
func (b *Buffer) Add(read func([]driver.Value) error) (weight int64, err error) {
	s := b.last()
	from := len(s.values)
	if s.values == nil { // often there is one row, and then none
		s.values = make([]driver.Value, 0, 2*s.width)
	}
	s.values = append(s.values, make([]driver.Value, s.width)...)
	row := s.values[from:]
	if err := read(row); err != nil {
		s.values = s.values[:from]
		return 0, err
	}
	s.rows++
	weight = weigh(row)
	b.account(weight)
	return weight, nil
}

// End is what the reader gets after the last row of the last result set: io.EOF, or the
// driver's error.
func (b *Buffer) End(err error) { b.last().end = err }

// EndSets ends the last result set: more is the driver's HasNextResultSet, next the error
// of its NextResultSet, nil if Capture follows.
func (b *Buffer) EndSets(more bool, next error) { b.last().More, b.last().next = more, next }

// Compact frees the memory of rows of the last result set that the reader has got, if these rows
// are most of the memory.
func (b *Buffer) Compact() {
	s := b.last()
	if s.read <= s.rows/2 {
		return
	}
	kept := copy(s.values, s.values[s.read*s.width:])
	clear(s.values[kept:])
	s.values = s.values[:kept]
	s.rows, s.read = s.rows-s.read, 0
}

// Bytes is about how much memory the rows take that are still to be read.
func (b *Buffer) Bytes() int64 { return b.bytes }

// Rows is how many rows of the last result set are in memory.
func (b *Buffer) Rows() int { return b.last().rows - b.last().read }

// SetClosed keeps the error of the Close of the driver's rows.
func (b *Buffer) SetClosed(err error) { b.closed = err }

// Closed returns the error that SetClosed has kept.
func (b *Buffer) Closed() error { return b.closed }

// Current is the result set that is read.
func (b *Buffer) Current() *Set { return b.sets[b.set] }

// Column returns what is known of a column's type.
func (s *Set) Column(i int) driverconn.ColumnType {
	if i < len(s.types) {
		return s.types[i]
	}
	return driverconn.NoColumnType()
}

// Behind reports whether a result set follows in the buffer.
func (b *Buffer) Behind() bool { return b.set < len(b.sets)-1 }

// Left reports whether something in the buffer has not been given to the reader.
func (b *Buffer) Left() bool {
	s := b.Current()
	return s.read < s.rows || b.Behind()
}

// Next gives the reader a row, or after the last row the driver's error. dest is nil if the reader
// scans its columns: see Column.
func (b *Buffer) Next(dest []driver.Value) error {
	s := b.Current()
	b.row = nil
	if s.read == s.rows {
		return s.end
	}
	if dest == nil {
		dest = make([]driver.Value, s.width)
		b.row = dest
	}
	row := s.values[s.read*s.width : (s.read+1)*s.width]
	copy(dest, row)
	clear(row) // so that memory is freed as it is read
	s.read++
	b.account(-weigh(dest[:s.width]))
	return nil
}

// NextSet goes to the next result set. Rows of this one that nobody wanted are dropped.
func (b *Buffer) NextSet() error {
	s := b.Current()
	switch {
	case s.next != nil:
		return s.next
	case !b.Behind():
		return io.EOF
	}
	b.set++
	b.row = nil
	b.account(-weigh(s.values[s.read*s.width:]))
	s.values = nil
	return nil
}

// Drop removes the buffer's bytes from the account. The buffer must not be used afterwards.
func (b *Buffer) Drop() { b.account(-b.bytes) }

func (b *Buffer) account(n int64) {
	b.bytes += n
	b.held.Add(n)
}

// weigh is about how many bytes a row takes in memory.
func weigh(row []driver.Value) int64 {
	n := 16 * int64(len(row))
	for _, v := range row {
		switch v := v.(type) {
		case nil, bool:
		case []byte:
			n += 24 + int64(len(v))
		case string:
			n += 16 + int64(len(v))
		case time.Time:
			n += 24
		case [][]byte:
			n += 24 * int64(len(v)+1)
			for _, b := range v {
				n += int64(len(b))
			}
		default:
			n += 8
		}
	}
	return n
}

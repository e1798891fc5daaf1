package pooldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"
)

// Reading ahead: the rest of open rows is read into memory, so that their
// connection can be used. What the owner of the rows sees is the same: rows,
// result sets, column types, and an error where it is.

// buffer is what was read ahead. Its reader has it to itself when it is
// complete; until then the connection's turn protects it.
type buffer struct {
	sets   []*resultSet
	set    int   // that is being read
	bytes  int64 // all of it, as accounted
	closed error // what closing the driver's rows said
}

type ahead = atomic.Pointer[buffer]

// resultSet is what was read ahead of one result set.
type resultSet struct {
	columns []string
	types   []columnType
	values  []driver.Value // of all rows, one after the other
	rows    int            // read ahead,
	read    int            // and of these, read by the owner
	end     error          // what the driver said after the last row
	more    bool           // HasNextResultSet, then
	next    error          // and NextResultSet
}

type columnType struct {
	scan                               reflect.Type
	name                               string
	length, precision, scale           int64
	nullable                           bool
	hasLength, hasNullable, hasDecimal bool
}

// typeOf asks the driver, and answers as database/sql does where it has nothing
// to say.
func typeOf(real driver.Rows, i int) columnType {
	t := columnType{scan: reflect.TypeFor[any]()}
	if p, ok := real.(driver.RowsColumnTypeScanType); ok {
		t.scan = p.ColumnTypeScanType(i)
	}
	if p, ok := real.(driver.RowsColumnTypeDatabaseTypeName); ok {
		t.name = p.ColumnTypeDatabaseTypeName(i)
	}
	if p, ok := real.(driver.RowsColumnTypeLength); ok {
		t.length, t.hasLength = p.ColumnTypeLength(i)
	}
	if p, ok := real.(driver.RowsColumnTypeNullable); ok {
		t.nullable, t.hasNullable = p.ColumnTypeNullable(i)
	}
	if p, ok := real.(driver.RowsColumnTypePrecisionScale); ok {
		t.precision, t.scale, t.hasDecimal = p.ColumnTypePrecisionScale(i)
	}
	return t
}

func (s *resultSet) column(i int) columnType {
	if i < len(s.types) {
		return s.types[i]
	}
	return columnType{scan: reflect.TypeFor[any]()}
}

func (b *buffer) now() *resultSet { return b.sets[b.set] }

// left reports whether something of the buffer has not been read.
func (b *buffer) left() bool {
	s := b.now()
	return s.read < s.rows || b.set < len(b.sets)-1
}

// next reads a row, or what the driver said behind the last one.
func (b *buffer) next(dest []driver.Value) error {
	s := b.now()
	if s.read == s.rows {
		return s.end
	}
	n := len(s.columns)
	row := s.values[s.read*n : (s.read+1)*n]
	copy(dest, row)
	clear(row) // so that memory goes as it is read
	s.read++
	return nil
}

func (b *buffer) nextSet() error {
	s := b.now()
	if s.next == nil && b.set < len(b.sets)-1 {
		b.set++
		return nil
	}
	if s.next != nil {
		return s.next
	}
	return io.EOF
}

// readAhead reads what is left of the rows into memory, under the connection's
// turn, and closes the driver's rows. Where nothing else has happened in their
// checkout, it has lost the connection by that; the caller takes it. On an error (too large, ctx has ended)
// what was read is kept, and the rows go on from there.
func (r *rows) readAhead(ctx context.Context, c *Connector) error {
	limit := c.config.NestedBuffer
	if r.prefix == nil {
		r.prefix = &buffer{}
		r.capture()
	}
	b := r.prefix
	before := b.bytes
	err := func() error {
		defer func() { c.stats.buffered.Add(b.bytes - before) }() // also by a panic of the driver
		return r.fill(ctx, b, limit)
	}()
	if err != nil {
		return err
	}
	c.stats.readAheads.Add(1)
	b.closed = r.shut()
	r.prefix = nil
	r.evicted = r.virgin
	r.ahead.Store(b) // the last: from here on the owner needs no turn
	return nil
}

// fill does readAhead's reading.
func (r *rows) fill(ctx context.Context, b *buffer, limit int64) error {
	for {
		s := b.sets[len(b.sets)-1]
		n := len(s.columns)
		for !r.ended {
			if b.bytes > limit {
				r.tooMuch = true
				return fmt.Errorf("%w: %d rows in %s are not all that is left; close them first, raise pool_nested_buffer, or let the outer query return less", ErrNestedBuffer, s.rows, size(b.bytes))
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			from := len(s.values)
			s.values = append(s.values, make([]driver.Value, n)...)
			row := s.values[from:]
			if err := r.read(row); err != nil {
				s.values = s.values[:from]
				s.end = err
				if err != io.EOF {
					return nil // database/sql reads no further
				}
				break
			}
			s.rows++
			b.bytes += weigh(row)
		}
		s.end = io.EOF
		s.more = hasMore(r.real)
		if !s.more {
			s.next = io.EOF
			return nil
		}
		if s.next = r.readSet(); s.next != nil {
			return nil
		}
		r.capture()
	}
}

// capture begins a result set with what is known of it before its rows.
func (r *rows) capture() {
	s := &resultSet{columns: r.real.Columns()}
	for i := range s.columns {
		s.types = append(s.types, typeOf(r.real, i))
	}
	r.prefix.sets = append(r.prefix.sets, s)
}

// weigh is about what a row takes in memory.
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
		default:
			n += 8
		}
	}
	return n
}

// clear reads the rows that are open on r into memory. Their checkout, if it has
// done nothing else, does not need the connection any more.
func (b *binding) clear(ctx context.Context, r *realConn) error {
	rows := r.live.Load()
	if rows == nil {
		return nil
	}
	if err := rows.readAhead(ctx, b.connector); err != nil {
		return err
	}
	if rows.evicted || rows.holds {
		r.seat.users--
	}
	return nil
}

// clearOthers reads the rows into memory that the task has open on connections
// other than r: on a database where they keep r from writing. What is too large
// stays, and the database has the last word.
func (b *binding) clearOthers(ctx context.Context, r *realConn) {
	for _, other := range b.connector.connections() {
		if other == r || other.holder.Load() != b || other.live.Load() == nil || !other.turn.try() {
			continue
		}
		func() {
			defer b.pass(other) // also by a panic of the driver
			if other.holder.Load() == b && !other.seat.apart && other.seat.raw == nil {
				_ = b.clear(ctx, other)
			}
		}()
	}
}

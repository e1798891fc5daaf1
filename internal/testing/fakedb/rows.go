package fakedb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// rows are the result sets of one query, with every optional interface.
type rows struct {
	conn   *conn
	ctx    context.Context // of the query: Next waits no longer than that
	sets   []*resultSet    // the current one first
	at     int64           // rows of the current set delivered
	memory []byte          // what the last Next handed out
	row    []driver.Value  // to be scanned; nil: none
	scans  bool            // Next must not be called
	closed bool
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
	_ driverconn.ColumnScanner              = (*rows)(nil)
)

func (r *rows) server() *Server { return r.conn.session.server }

func (r *rows) Columns() []string {
	names := make([]string, 0, len(r.sets[0].columns))
	for _, c := range r.sets[0].columns {
		names = append(names, c.name)
	}
	return names
}

func (r *rows) Close() error {
	if !r.conn.closed.Load() {
		defer r.conn.use(RowsClose)()
	}
	after, err := r.server().enter(context.Background(), r.conn.session, RowsClose, "", nil)
	if r.closed {
		r.server().violation("rows closed twice on connection %d", r.conn.session.id)
		return err
	}
	r.closed = true
	r.scribble()
	r.server().mu.Lock()
	r.conn.session.openRows--
	r.server().changedLocked()
	r.server().mu.Unlock()
	return r.server().finish(after, r.conn.session.id, err)
}

// scribble makes unusable what the last Next handed out: a driver's memory is
// valid until the next call only, and whoever keeps it must be found out.
func (r *rows) scribble() {
	for i := range r.memory {
		r.memory[i] = '#'
	}
	r.memory = r.memory[:0]
}

func (r *rows) Next(dest []driver.Value) error {
	if r.scans {
		r.server().violation("Rows.Next on connection %d, whose rows scan their columns", r.conn.session.id)
	}
	return r.next(dest)
}

// NextRow does what Next does, for ScanColumn.
func (r *rows) NextRow() error {
	r.row = nil
	row := make([]driver.Value, len(r.sets[0].columns))
	if err := r.next(row); err != nil {
		return err
	}
	r.row = row
	return nil
}

// ScanColumn scans a text with commas into a []string, which database/sql cannot. All else
// it leaves to database/sql.
func (r *rows) ScanColumn(ctx driverconn.ScanContext, index int, dest any) error {
	defer r.conn.use(RowsScan)()
	if r.closed || r.row == nil {
		r.server().violation("Rows.ScanColumn without a row on connection %d", r.conn.session.id)
		return errors.New("no row")
	}
	after, err := r.server().enter(r.ctx, r.conn.session, RowsScan, "", nil)
	if err != nil {
		return err
	}
	value := r.row[index]
	text, isText := value.(string)
	if list, ok := dest.(*[]string); ok && isText {
		*list = strings.Split(text, ",")
	} else {
		err = driverconn.ConvertAssign(ctx, dest, value)
	}
	return r.server().finish(after, r.conn.session.id, err)
}

func (r *rows) next(dest []driver.Value) error {
	defer r.conn.use(RowsNext)()
	if r.closed {
		r.server().violation("Rows.Next after Close on connection %d", r.conn.session.id)
	}
	after, err := r.server().enter(r.ctx, r.conn.session, RowsNext, "", nil)
	if err != nil {
		return err
	}
	if r.conn.dead() {
		return driver.ErrBadConn
	}
	r.scribble()
	set := r.sets[0]
	if set.breakAt >= 0 && r.at >= int64(set.breakAt) {
		return set.breakErr
	}
	values, ok := set.row(r.at)
	if !ok {
		return io.EOF
	}
	r.at++
	size := 0
	for _, v := range values {
		if b, ok := v.([]byte); ok {
			size += len(b)
		}
	}
	if r.memory == nil || cap(r.memory) < size { // nothing of nil would be nil: NULL
		r.memory = make([]byte, 0, size)
	}
	for i, v := range values {
		if b, ok := v.([]byte); ok && b != nil {
			start := len(r.memory)
			r.memory = append(r.memory, b...)
			v = r.memory[start:len(r.memory):len(r.memory)]
		}
		if n, ok := v.(cursor); ok {
			v = r.conn.open(r.ctx, numbers(int64(n)))
		}
		dest[i] = v
	}
	return r.server().finish(after, r.conn.session.id, nil)
}

func (r *rows) HasNextResultSet() bool { return len(r.sets) > 1 }

func (r *rows) NextResultSet() error {
	defer r.conn.use(RowsNextSet)()
	after, err := r.server().enter(context.Background(), r.conn.session, RowsNextSet, "", nil)
	if err != nil {
		return err
	}
	if len(r.sets) < 2 {
		return io.EOF
	}
	r.sets, r.at, r.row = r.sets[1:], 0, nil
	return r.server().finish(after, r.conn.session.id, nil)
}

func (r *rows) ColumnTypeScanType(index int) reflect.Type {
	return scanTypes[r.sets[0].columns[index].typeName]
}

func (r *rows) ColumnTypeDatabaseTypeName(index int) string {
	return r.sets[0].columns[index].typeName
}

func (r *rows) ColumnTypeLength(index int) (int64, bool) {
	switch c := r.sets[0].columns[index]; {
	case c.length >= 0:
		return c.length, true
	case c.typeName == "TEXT" || c.typeName == "BLOB":
		return math.MaxInt64, true
	}
	return 0, false
}

func (r *rows) ColumnTypeNullable(index int) (nullable, ok bool) {
	c := r.sets[0].columns[index]
	return !c.notNull, c.typeName != "ANY"
}

func (r *rows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	c := r.sets[0].columns[index]
	if c.precision < 0 {
		return 0, 0, false
	}
	return c.precision, c.scale, true
}

package postgres

import (
	"database/sql/driver"
	"reflect"
	"slices"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/internal/driverfield"
)

// memoryRows are a result as it came from the server. stdlib.Rows read them in place of the
// connection, so every conversion is pgx's own.
type memoryRows struct {
	pgx.Rows // nil: stdlib.Rows and columns call only the methods below
	types    *pgtype.Map
	fields   []pgconn.FieldDescription

	data    []byte  // the bytes of all values
	lengths []int32 // of all values in data; null: the value is NULL
	left    int     // rows that Next has not reached
	row     [][]byte
	end     error // the error after the last row
	ended   bool
}

const null = -1

// lengthSize is the size of one of memoryRows.lengths, in bytes.
const lengthSize = 4

// add copies one row.
func (r *memoryRows) add(values [][]byte) {
	if r.row == nil {
		r.row, r.data = make([][]byte, len(values)), []byte{} // an empty value is not NULL, so it is no nil
	}
	for _, v := range values {
		length := int32(null)
		if v != nil {
			length = int32(len(v)) // the protocol has a length of 32 bits
			r.data = append(r.data, v...)
		}
		r.lengths = append(r.lengths, length)
	}
	r.left++
}

func (r *memoryRows) size() int { return len(r.data) + lengthSize*len(r.lengths) }

func (r *memoryRows) FieldDescriptions() []pgconn.FieldDescription { return r.fields }
func (r *memoryRows) TypeMap() *pgtype.Map                         { return r.types }
func (r *memoryRows) RawValues() [][]byte                          { return r.row }

func (r *memoryRows) Next() bool {
	if r.left == 0 {
		r.Close()
		return false
	}
	r.left--
	for i, length := range r.lengths[:len(r.row)] {
		r.row[i] = nil
		if length != null {
			r.row[i], r.data = r.data[:length:length], r.data[length:]
		}
	}
	r.lengths = r.lengths[len(r.row):]
	return true
}

func (r *memoryRows) Close() {
	r.ended, r.left = true, 0
	r.data, r.lengths, r.row = nil, nil, nil
}

func (r *memoryRows) Err() error {
	if r.ended {
		return r.end
	}
	return nil
}

// connField has the connection of pgx's rows.
var connField = driverfield.Of[*stdlib.Conn](reflect.TypeFor[stdlib.Rows](), "conn", "nothing is pipelined")

// overMemory returns rows that read r. Both fields are known.
func (s *session) overMemory(r *memoryRows) driver.Rows {
	rows := new(stdlib.Rows)
	*connField.In(unsafe.Pointer(rows)) = s.conn
	*rowsField.In(unsafe.Pointer(rows)) = r
	return rows
}

// inBinary are the types that pgx asks for in the binary format on behalf of database/sql, and not in
// text (pgx 5.12.0: stdlib's databaseSQLResultFormats).
var inBinary = []uint32{
	pgtype.BoolOID, pgtype.ByteaOID, pgtype.CIDOID, pgtype.DateOID, pgtype.Float4OID, pgtype.Float8OID, pgtype.Int2OID,
	pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.XIDOID,
}

// resultFormats are the formats of the columns that pgx asks for on behalf of database/sql.
func resultFormats(fields []pgconn.FieldDescription) []int16 {
	formats := make([]int16, len(fields))
	for i, f := range fields {
		if slices.Contains(inBinary, f.DataTypeOID) {
			formats[i] = pgtype.BinaryFormatCode
		}
	}
	return formats
}

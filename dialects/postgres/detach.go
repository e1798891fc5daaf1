package postgres

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverfield"
)

// Since Go 1.27 pgx scans arrays, ranges and so on itself, from the bytes that the server
// has sent. Rows that are read into memory keep these bytes, and a copy of the connection's
// types scans them.

var _ dialects.RowDetacher = (*session)(nil)

// columns are the columns of rows of pgx.
type columns struct {
	rows   pgx.Rows
	fields []pgconn.FieldDescription
	types  *pgtype.Map
}

// rowsField has pgx's rows. Only they have the bytes.
var rowsField = driverfield.Of[pgx.Rows](reflect.TypeFor[stdlib.Rows](), "rows",
	"nothing is pipelined, and arrays, ranges and the like of rows in memory are scanned by database/sql")

func (s *session) DetachColumns(rows driver.Rows) dialects.DetachedColumns {
	r, ok := rows.(*stdlib.Rows)
	if !ok || !rowsField.Known() {
		return nil
	}
	inner := *rowsField.In(unsafe.Pointer(r))
	if inner.TypeMap() == nil {
		return nil // rows that are an error only
	}
	fields := slices.Clone(inner.FieldDescriptions())
	return &columns{rows: inner, fields: fields, types: copyTypes(inner.TypeMap(), fields)}
}

// Raw is valid until the next row is read.
func (c *columns) Raw(i int) []byte { return c.rows.RawValues()[i] }

// Scan decides as pgx's ScanColumn does.
func (c *columns) Scan(i int, raw []byte, dest any) (done bool, err error) {
	if dest == nil {
		return false, nil // database/sql's error is pgx's
	}
	v := reflect.ValueOf(dest)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return true, errors.New("destination pointer is nil")
	}
	if convertsValue(v.Type()) {
		return false, nil
	}
	f := c.fields[i]
	return true, c.types.Scan(f.DataTypeOID, f.Format, raw, dest)
}

// copyTypes copies the types of a connection, so that they may be used beside it. The codec
// of an enum writes when it reads: such codecs of the columns are made anew.
func copyTypes(of *pgtype.Map, fields []pgconn.FieldDescription) *pgtype.Map {
	types := of.Copy()
	types.TryWrapScanPlanFuncs = slices.Clone(of.TryWrapScanPlanFuncs)
	for _, f := range fields {
		if t, ok := types.TypeForOID(f.DataTypeOID); ok {
			if own := ownEnums(t); own != t {
				types.RegisterType(own)
			}
		}
	}
	return types
}

// ownEnums returns t if t contains no enum, else a copy of t whose enum has its own codec.
func ownEnums(t *pgtype.Type) *pgtype.Type {
	with := func(c pgtype.Codec) *pgtype.Type {
		return &pgtype.Type{Codec: c, Name: t.Name, OID: t.OID}
	}
	switch c := t.Codec.(type) {
	case *pgtype.EnumCodec:
		return with(new(pgtype.EnumCodec))
	case *pgtype.ArrayCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return with(&pgtype.ArrayCodec{ElementType: own})
		}
	case *pgtype.RangeCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return with(&pgtype.RangeCodec{ElementType: own})
		}
	case *pgtype.MultirangeCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return with(&pgtype.MultirangeCodec{ElementType: own})
		}
	case *pgtype.CompositeCodec:
		fields := slices.Clone(c.Fields)
		for i := range fields {
			fields[i].Type = ownEnums(fields[i].Type)
		}
		if !slices.Equal(fields, c.Fields) {
			return with(&pgtype.CompositeCodec{Fields: fields})
		}
	}
	return t
}

// convertsValue reports whether pgx leaves a destination of type t to database/sql's
// conversion: Scanners, scalars, bytes and times, also behind pointers.
func convertsValue(t reflect.Type) bool {
	if known, ok := conversions.Load(t); ok {
		return known.(bool)
	}
	answer := findConversion(t)
	conversions.Store(t, answer)
	return answer
}

var conversions sync.Map // of reflect.Type to bool

var (
	scannerType      = reflect.TypeFor[sql.Scanner]()
	arraySetterType  = reflect.TypeFor[pgtype.ArraySetter]()
	bytesScannerType = reflect.TypeFor[pgtype.BytesScanner]()
	timeType         = reflect.TypeFor[time.Time]()
)

func findConversion(t reflect.Type) bool {
	for pointers := 0; ; pointers++ {
		switch {
		case t.Implements(scannerType):
			return true
		case t.Implements(arraySetterType), t.Implements(bytesScannerType):
			return false
		case t.Kind() != reflect.Pointer:
			return isScalar(t)
		case pointers == maxPointers:
			return false // a pointer type that points to itself
		}
		t = t.Elem()
	}
}

// maxPointers is more than any destination has.
const maxPointers = 100

func isScalar(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.String, reflect.Interface:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	case reflect.Struct:
		return t.ConvertibleTo(timeType)
	default:
		return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr
	}
}

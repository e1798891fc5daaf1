package postgres

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pooldriver/pooldriver/dialects"
)

// Methods of an argument may take long, wait for a lock, or ask the same database. So none of them runs in a
// pipeline, where others would wait for it.

var _ dialects.ArgumentKeeper = dialect{}

// valued is an argument whose Value has been called.
type valued struct {
	value driver.Value
	like  any // the zero value of the argument's type; nil: of no type
}

// Value implements driver.Valuer.
func (v valued) Value() (driver.Value, error) { return v.value, nil }

// printed is an argument whose String has been called.
type printed struct {
	value any
	text  string
}

// String implements fmt.Stringer.
func (v printed) String() string { return v.text }

// KeepArgument implements dialects.ArgumentKeeper. A method that panics does so again where the query is executed alone.
func (dialect) KeepArgument(v any) (kept any, size int, ok bool) {
	switch v := v.(type) {
	case nil, bool, int, int32, int64, float64, time.Time, time.Duration, netip.Addr, netip.Prefix:
		return v, 0, true
	case string:
		return v, len(v), true
	case []byte:
		return bytes.Clone(v), len(v), true
	case json.RawMessage:
		return json.RawMessage(bytes.Clone(v)), len(v), true
	case pgx.QueryExecMode, pgx.QueryRewriter:
		return nil, 0, false // an option for pgx
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	of := reflect.ValueOf(v)
	if of.Type().PkgPath() != pgtypePath {
		if encodesItself(v) {
			return nil, 0, false
		}
		switch m := v.(type) {
		case driver.Valuer:
			return keepValue(m, of)
		case fmt.Stringer:
			return printed{v, m.String()}, sizeOf(of), isBasic(of.Kind())
		}
	}
	return v, sizeOf(of), isCopied(of.Type())
}

var pgtypePath = reflect.TypeFor[pgtype.Text]().PkgPath()

// keepValue calls Value. pgx does not call it for nil pointers, and calls it for what a pointer refers to.
func keepValue(v driver.Valuer, of reflect.Value) (kept any, size int, ok bool) {
	if of.Kind() == reflect.Pointer {
		if of.IsNil() {
			return nil, 0, false
		}
		if _, ok := of.Elem().Interface().(driver.Valuer); !ok {
			return nil, 0, false
		}
		of = of.Elem()
	}
	value, err := v.Value()
	if err != nil {
		return nil, 0, false
	}
	switch v := value.(type) {
	case nil, bool, int64, float64, time.Time:
	case string:
		size = len(v)
	case []byte:
		value, size = bytes.Clone(v), len(v)
	default:
		return nil, 0, false
	}
	return valued{value, reflect.Zero(of.Type()).Interface()}, size, true
}

// toEncode returns what pgx encodes for a kept argument, without code of the program. ok is false if pgx would not have
// called the method that KeepArgument has: a codec that the program has registered encodes the type.
func toEncode(m *pgtype.Map, oid uint32, kept any) (v any, ok bool) {
	switch kept := kept.(type) {
	case valued:
		return kept, encodesAlike(m, oid, kept.like, valued{})
	case printed:
		if encodesAlike(m, oid, kept.value, printed{}) {
			return kept, true
		}
		return kept.value, true
	}
	return kept, true
}

// encodesAlike reports whether pgx encodes a and b by the same kind of plan.
func encodesAlike(m *pgtype.Map, oid uint32, a, b any) bool {
	return reflect.TypeOf(planOf(m, oid, a)) == reflect.TypeOf(planOf(m, oid, b))
}

// planOf is the plan that pgx tries first.
func planOf(m *pgtype.Map, oid uint32, v any) pgtype.EncodePlan {
	format := m.FormatCodeForOID(oid)
	if plan := m.PlanEncode(oid, format, v); plan != nil {
		return plan
	}
	return m.PlanEncode(oid, pgx.BinaryFormatCode-format, v)
}

// encodesItself reports whether v has methods that pgx would prefer to Value and to v's kind.
func encodesItself(v any) bool {
	switch v.(type) {
	case pgtype.TextValuer, pgtype.BytesValuer, pgtype.BoolValuer, pgtype.Int64Valuer, pgtype.Float64Valuer, pgtype.NumericValuer, pgtype.Uint32Valuer, pgtype.Uint64Valuer,
		pgtype.DateValuer, pgtype.TimeValuer, pgtype.TimestampValuer, pgtype.TimestamptzValuer, pgtype.IntervalValuer, pgtype.UUIDValuer, pgtype.NetipPrefixValuer,
		pgtype.HstoreValuer, pgtype.BitsValuer, pgtype.TIDValuer, pgtype.TSVectorValuer,
		pgtype.PointValuer, pgtype.LineValuer, pgtype.LsegValuer, pgtype.BoxValuer, pgtype.PathValuer, pgtype.PolygonValuer, pgtype.CircleValuer,
		pgtype.ArrayGetter, pgtype.CompositeIndexGetter, pgtype.RangeValuer, pgtype.MultirangeGetter:
		return true
	}
	_, marshals := v.(json.Marshaler)
	_, values := v.(driver.Valuer) // pgx prefers Value to MarshalJSON
	return marshals && !values
}

// isBasic reports whether a value of kind k refers to nothing that may change.
func isBasic(k reflect.Kind) bool {
	return k <= reflect.Complex128 && k != reflect.Uintptr || k == reflect.String
}

// isCopied reports whether an assignment copies all of a value of type t, as with [16]byte, and pgx calls no methods of
// what is in it.
func isCopied(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isCopiedInside(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isCopiedInside(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return isBasic(t.Kind())
}

func isCopiedInside(t reflect.Type) bool {
	return t == timeType || (t.NumMethod() == 0 || t.PkgPath() == pgtypePath) && isCopied(t)
}

// sizeOf is about how many bytes v, which isCopied, takes.
func sizeOf(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Array:
		for i := range v.Len() {
			n += sizeOf(v.Index(i))
		}
		return n
	case reflect.Struct:
		for i := range v.NumField() {
			n += sizeOf(v.Field(i))
		}
		return n
	}
	return int(v.Type().Size())
}

package fakedb

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Option is an argument that is meant for the driver and not for the
// statement: with a NamedValueChecker it is removed from the arguments (SHOW
// options tells the last one). Without, it is a string.
type Option string

// Point is a type which only the driver's own NamedValueChecker can convert;
// the text it becomes says whether the connection or the statement did it.
type Point struct{ X, Y int }

// Refused is a type which every NamedValueChecker refuses.
type Refused struct{}

// cursor is a value that Rows.Next turns into rows over so many numbers.
type cursor int64

type column struct {
	name      string
	typeName  string
	notNull   bool
	length    int64 // -1: none
	precision int64 // -1: none
	scale     int64
}

var scanTypes = map[string]reflect.Type{
	"INT":       reflect.TypeFor[int64](),
	"BIGINT":    reflect.TypeFor[int64](),
	"FLOAT":     reflect.TypeFor[float64](),
	"BOOL":      reflect.TypeFor[bool](),
	"TEXT":      reflect.TypeFor[string](),
	"VARCHAR":   reflect.TypeFor[string](),
	"DECIMAL":   reflect.TypeFor[string](),
	"BLOB":      reflect.TypeFor[[]byte](),
	"TIMESTAMP": reflect.TypeFor[time.Time](),
	"ANY":       reflect.TypeFor[any](),
}

// columnFor makes up a column for a value that comes from no table.
func columnFor(name string, v any) column {
	c := column{name: name, typeName: "ANY", length: -1, precision: -1, notNull: v != nil}
	switch v.(type) {
	case int64:
		c.typeName = "BIGINT"
	case float64:
		c.typeName = "FLOAT"
	case bool:
		c.typeName = "BOOL"
	case string:
		c.typeName = "TEXT"
	case []byte:
		c.typeName = "BLOB"
	case time.Time:
		c.typeName = "TIMESTAMP"
	}
	return c
}

// converter is what ColumnConverter answers for an argument stored in c.
func (c column) converter() driver.ValueConverter {
	var conv driver.ValueConverter
	switch c.typeName {
	case "INT":
		conv = driver.Int32
	case "BOOL":
		conv = driver.Bool
	case "TEXT", "VARCHAR":
		conv = driver.String
	default:
		conv = driver.DefaultParameterConverter
	}
	if c.notNull {
		return driver.NotNull{Converter: conv}
	}
	return driver.Null{Converter: conv}
}

// cloneValue copies what the caller may reuse.
func cloneValue(v any) any {
	if b, ok := v.([]byte); ok && b != nil {
		return bytes.Clone(b)
	}
	return v
}

func cloneArgs(args []driver.NamedValue) []driver.NamedValue {
	args = slices.Clone(args)
	for i := range args {
		args[i].Value = cloneValue(args[i].Value)
	}
	return args
}

func sameValue(a, b any) bool {
	if a == nil || b == nil {
		return false
	}
	if x, ok := a.(time.Time); ok {
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}

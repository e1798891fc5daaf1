package integration

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// reading is all that a program can see of a query's rows.
type reading struct {
	Sets  []resultSet
	Err   string // of Rows.Err
	Close string
}

// resultSet is what there is of one of them.
type resultSet struct {
	Heads []string // what Columns and ColumnTypes say, each time they were asked
	Rows  []string // and errors of Scan
}

// rows counts those of all sets.
func (r reading) rows() (n int) {
	for _, s := range r.Sets {
		n += len(s.Rows)
	}
	return n
}

// difference says where two readings part, and is empty if they do not. Readings
// are long: a whole one in a test's output helps nobody.
func difference(want, got reading) string {
	if want.Err != got.Err || want.Close != got.Close {
		return fmt.Sprintf("after %d rows the error is %q, closing %q; it should be %q, %q after %d rows",
			got.rows(), got.Err, got.Close, want.Err, want.Close, want.rows())
	}
	if len(want.Sets) != len(got.Sets) {
		return fmt.Sprintf("%d result sets, should be %d", len(got.Sets), len(want.Sets))
	}
	for i, set := range want.Sets {
		if d := firstDifference(set.Heads, got.Sets[i].Heads); d != "" {
			return fmt.Sprintf("result set %d, columns asked for: %s", i, d)
		}
		if d := firstDifference(set.Rows, got.Sets[i].Rows); d != "" {
			return fmt.Sprintf("result set %d, row %s", i, d)
		}
	}
	return ""
}

// firstDifference compares texts line by line.
func firstDifference(want, got []string) string {
	for i := range min(len(want), len(got)) {
		if want[i] == got[i] {
			continue
		}
		a, b := strings.Split(want[i], "\n"), strings.Split(got[i], "\n")
		for j := range min(len(a), len(b)) {
			if a[j] != b[j] {
				return fmt.Sprintf("%d: %s; should be %s", i, b[j], a[j])
			}
		}
		return fmt.Sprintf("%d has %d lines; should have %d", i, len(b), len(a))
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d are all; should be %d", len(got), len(want))
	}
	return ""
}

// readAll reads rows to their end, into destinations as the target wants them.
// It calls between when it has read k rows, of all result sets together.
func readAll(rows *sql.Rows, to target, k int, between func()) (r reading) {
	for more := true; more; more = rows.NextResultSet() {
		set := resultSet{Heads: []string{head(rows)}}
		types, _ := rows.ColumnTypes()
		pause := func() {
			if r.rows()+len(set.Rows) == k {
				between()
				k = -1
				set.Heads = append(set.Heads, head(rows))
			}
		}
		for pause(); rows.Next(); pause() {
			set.Rows = append(set.Rows, to.scan(rows, types))
		}
		set.Heads = append(set.Heads, head(rows))
		r.Sets = append(r.Sets, set)
	}
	if err := rows.Err(); err != nil {
		r.Err = err.Error()
	}
	if err := rows.Close(); err != nil {
		r.Close = err.Error()
	}
	return r
}

func head(rows *sql.Rows) string {
	names, err := rows.Columns()
	text := fmt.Sprintf("%q %v\n", names, err)
	types, err := rows.ColumnTypes()
	if err != nil {
		return text + err.Error()
	}
	for _, c := range types {
		length, hasLength := c.Length()
		nullable, hasNullable := c.Nullable()
		precision, scale, hasDecimal := c.DecimalSize()
		text += fmt.Sprintf("%s %s length %d %t nullable %t %t decimal %d %d %t scan %v\n",
			c.Name(), c.DatabaseTypeName(), length, hasLength, nullable, hasNullable, precision, scale, hasDecimal, c.ScanType())
	}
	return text
}

// target is what a program scans into.
type target struct {
	name string
	new  func(c *sql.ColumnType) any
}

var targets = []target{
	{"any", func(*sql.ColumnType) any { return new(any) }},
	{"[]byte", func(*sql.ColumnType) any { return new([]byte) }},
	{"sql.RawBytes", func(*sql.ColumnType) any { return new(sql.RawBytes) }},
	{"string", func(*sql.ColumnType) any { return new(string) }},
	{"string or NULL", func(*sql.ColumnType) any { return new(sql.Null[string]) }},
	{"the type of the column", func(c *sql.ColumnType) any { return reflect.New(scanType(c)).Interface() }},
	{"a pointer to it", func(c *sql.ColumnType) any { return reflect.New(reflect.PointerTo(scanType(c))).Interface() }},
}

// scanType is any where the driver knows none (SQLite's NULL).
func scanType(c *sql.ColumnType) reflect.Type {
	if t := c.ScanType(); t != nil {
		return t
	}
	return reflect.TypeFor[any]()
}

// scan returns the row's values as text, at once: raw bytes are gone with the
// next one.
func (to target) scan(rows *sql.Rows, types []*sql.ColumnType) string {
	values := make([]any, len(types))
	for i, c := range types {
		values[i] = to.new(c)
	}
	text := ""
	if err := rows.Scan(values...); err != nil {
		text = err.Error() + "\n"
	}
	for i, v := range values {
		text += types[i].Name() + " " + shown(reflect.ValueOf(v).Elem().Interface()) + "\n"
	}
	return text
}

// shown tells apart all that differs: types, nil and empty, time zones.
func shown(value any) string {
	switch v := value.(type) {
	case nil:
		return "nil"
	case []byte:
		return fmt.Sprintf("%T nil=%t %s", v, v == nil, digest(v))
	case sql.RawBytes:
		return fmt.Sprintf("%T nil=%t %s", v, v == nil, digest(v))
	case string:
		return fmt.Sprintf("%T %s", v, digest([]byte(v)))
	case sql.Null[string]:
		return fmt.Sprintf("%T %t %s", v, v.Valid, digest([]byte(v.V)))
	case time.Time:
		return fmt.Sprintf("%T %s %s", v, v.Format(time.RFC3339Nano), v.Location())
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && !v.IsNil() {
		return "*" + shown(v.Elem().Interface())
	}
	return fmt.Sprintf("%T %#v", value, value)
}

func digest(b []byte) string {
	if len(b) <= 200 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
}

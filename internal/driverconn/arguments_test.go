package driverconn

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checker keeps "option" for itself, refuses "no", replaces "mine", and leaves the rest to
// others.
type checker struct{ by string }

func (c checker) CheckNamedValue(nv *driver.NamedValue) error {
	switch nv.Value {
	case "option":
		return driver.ErrRemoveArgument
	case "no":
		return errors.New("not this one")
	case "mine":
		nv.Value = c.by
		return nil
	}
	return driver.ErrSkip
}

// countingStmt takes two arguments, and checks nothing.
type countingStmt struct{ oldStmt }

func (*countingStmt) NumInput() int { return 2 }

// convertingStmt converts by columns: the first one is an int32, the others make something
// that is no driver.Value.
type convertingStmt struct{ countingStmt }

func (*convertingStmt) ColumnConverter(i int) driver.ValueConverter {
	if i == 0 {
		return driver.Int32
	}
	return badConverter{}
}

type badConverter struct{}

func (badConverter) ConvertValue(any) (driver.Value, error) { return struct{}{}, nil }

// checkingStmt checks in the place of its connection.
type checkingStmt struct {
	countingStmt
	checker
}

// valuer is a value of the program's.
type valuer struct {
	value driver.Value
	err   error
}

func (v valuer) Value() (driver.Value, error) { return v.value, v.err }

func arguments(values ...any) (named []driver.NamedValue) {
	for i, v := range values {
		named = append(named, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return named
}

func TestArgumentsAreConvertedAsDatabaseSQLDoes(t *testing.T) {
	counting, converting, checking := &countingStmt{}, &convertingStmt{}, &checkingStmt{checker: checker{"stmt"}}
	at := time.Now()
	for name, tc := range map[string]struct {
		conn driver.NamedValueChecker
		si   driver.Stmt
		args []any
		want []any
		err  string
	}{
		"plain values of a statement":         {si: &oldStmt{}, args: []any{int64(1), 2.5, true, []byte("x"), "s", nil}, want: []any{int64(1), 2.5, true, []byte("x"), "s", nil}},
		"the default conversion":              {args: []any{int32(3), at, valuer{"v", nil}}, want: []any{int64(3), at, "v"}},
		"what nobody converts":                {args: []any{struct{}{}}, err: "sql: converting argument $1 type: unsupported type struct {}, a struct"},
		"the connection's check":              {conn: checker{"conn"}, args: []any{"mine", 4}, want: []any{"conn", int64(4)}},
		"one that the driver keeps":           {conn: checker{}, args: []any{"option", int32(3), nil}, want: []any{int64(3), nil}},
		"one that it refuses":                 {conn: checker{}, args: []any{1, "no"}, err: "sql: converting argument $2 type: not this one"},
		"the statement's check comes first":   {conn: checker{"conn"}, si: checking, args: []any{"mine", "x"}, want: []any{"stmt", "x"}},
		"the connection's, if it has none":    {conn: checker{"conn"}, si: counting, args: []any{"mine", "x"}, want: []any{"conn", "x"}},
		"too few arguments":                   {si: counting, args: []any{1}, err: "sql: expected 2 arguments, got 1"},
		"too many":                            {si: counting, args: []any{1, 2, 3}, err: "sql: expected 2 arguments, got 3"},
		"too few without the driver's own":    {conn: checker{}, si: counting, args: []any{"option", 1}, err: "sql: expected 2 arguments, got 1"},
		"the column's converter":              {si: converting, args: []any{"7"}, err: "sql: expected 2 arguments, got 1"},
		"the column's converter refuses":      {si: converting, args: []any{"x", 1}, err: `sql: converting argument $1 type: sql/driver: value "x" can't be converted to int32`},
		"a converter that makes no value":     {si: converting, args: []any{1, "x"}, err: "sql: converting argument $2 type: driver ColumnConverter error converted string to unsupported type struct {}"},
		"a Valuer before the converter":       {si: converting, args: []any{valuer{"x", nil}, 1}, err: `sql: converting argument $1 type: sql/driver: value "x" can't be converted to int32`},
		"a Valuer that fails":                 {si: converting, args: []any{valuer{nil, errors.New("no value")}, 1}, err: "sql: converting argument $1 type: no value"},
		"a Valuer that makes no value":        {si: converting, args: []any{valuer{int32(1), nil}, 1}, err: "sql: converting argument $1 type: non-subset type int32 returned from Value"},
		"a nil pointer whose element has one": {si: converting, args: []any{(*valuer)(nil), 1}, err: "sql: converting argument $1 type: sql/driver: unsupported value <nil> (type <nil>) converting to int32"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ConverterOf(tc.conn, tc.si)
			got, err := c.Convert(arguments(tc.args...))
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, arguments(tc.want...), got)
		})
	}
}

func TestAnErrorNamesItsArgument(t *testing.T) {
	c := ConverterOf(checker{}, nil)
	_, err := c.Convert([]driver.NamedValue{{Ordinal: 1, Name: "a", Value: "no"}})
	require.EqualError(t, err, `sql: converting argument with name "a" type: not this one`)
}

func TestNamedArgumentsNeedADriverThatKnowsThem(t *testing.T) {
	named := []driver.NamedValue{{Name: "a", Ordinal: 1}}
	c := New(&middle{})
	for _, call := range []func() error{
		func() error { _, err := c.Exec(t.Context(), "q", named); return err },
		func() error { _, err := c.Query(t.Context(), "q", named); return err },
		func() error { _, err := ExecStmt(t.Context(), &oldStmt{&old{}}, named); return err },
		func() error { _, err := QueryStmt(t.Context(), &oldStmt{&old{}}, named); return err },
	} {
		require.EqualError(t, call(), "sql: driver does not support the use of Named Parameters")
	}
}

func TestWhichArgumentsNeedConversionOrRunCode(t *testing.T) {
	for name, tc := range map[string]struct {
		value           any
		plain, runsCode bool
	}{
		"nil":       {nil, true, false},
		"int64":     {int64(1), true, false},
		"float64":   {1.5, true, false},
		"bool":      {true, true, false},
		"bytes":     {[]byte("x"), true, false},
		"string":    {"x", true, false},
		"time":      {time.Now(), true, false},
		"int":       {1, true, false},
		"int32":     {int32(-1), true, false},
		"uint32":    {uint32(1 << 31), true, false},
		"uint64":    {uint64(1), false, false},
		"a Valuer":  {valuer{}, false, true},
		"a pointer": {new(int), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			args := arguments("before", tc.value, "behind")
			require.Equal(t, tc.runsCode, MayRunCode(args))
			require.Equal(t, tc.plain, MakePlain(args))
			if !tc.plain {
				require.Equal(t, arguments("before", tc.value, "behind"), args)
				return
			}
			want, err := driver.DefaultParameterConverter.ConvertValue(tc.value)
			require.NoError(t, err)
			require.Equal(t, arguments("before", want, "behind"), args)
		})
	}
}

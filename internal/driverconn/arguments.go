package driverconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Argument conversion as database/sql does it between the program and the driver
// (driverArgsConnLocked in its convert.go). database/sql makes a connection check the arguments
// before it passes the statement's context: then the real connection is not known yet. A virtual
// connection therefore accepts every argument, and the real driver's conversion runs here. Order,
// outcomes and error texts are those of database/sql.

// columnConverter is deprecated, and drivers have it.
type columnConverter = driver.ColumnConverter //nolint:staticcheck // see above

// Converter converts the arguments of a statement as its driver asks for.
type Converter struct {
	check  driver.NamedValueChecker
	column columnConverter
	want   int // how many arguments; -1: not known
}

// ConverterOf asks the driver's statement si or, if si is nil, the connection, which runs the
// statement directly. The answer holds as long as the statement.
func ConverterOf(conn driver.NamedValueChecker, si driver.Stmt) Converter {
	v := Converter{check: conn, want: -1}
	if si != nil {
		v.want = si.NumInput()
		if c, ok := si.(driver.NamedValueChecker); ok {
			v.check = c
		}
		v.column, _ = si.(columnConverter)
	}
	return v
}

// Convert checks and converts args in place. It may return a shorter slice: a
// driver may keep an argument for itself.
func (v *Converter) Convert(args []driver.NamedValue) ([]driver.NamedValue, error) {
	if v.check == nil && v.column == nil && v.want == -1 && MakePlain(args) {
		return args, nil // the caller has looked at the other arguments
	}
	n := 0
	for i := range args {
		nv := &args[n]
		if n != i { // an argument before it was removed
			*nv = args[i]
			nv.Ordinal = n + 1
		}
		switch err := v.convertArg(nv); err {
		case nil:
			n++
		case driver.ErrRemoveArgument:
		default:
			return nil, fmt.Errorf("sql: converting argument %s type: %w", describe(nv), err)
		}
	}
	if v.want != -1 && n != v.want {
		return nil, fmt.Errorf("sql: expected %d arguments, got %d", v.want, n)
	}
	return args[:n], nil
}

// MakePlain does the default conversion in place. It reports whether all arguments have the types
// that nearly all programs use. If not, it may have converted some arguments. The conversion of the
// others does not depend on these.
func MakePlain(args []driver.NamedValue) bool {
	for i := range args {
		if n, ok := args[i].Value.(int); ok {
			args[i].Value = int64(n)
		} else if !isPlain(args[i].Value) && !makePlain(&args[i]) {
			return false
		}
	}
	return true
}

// makePlain converts an argument that the default conversion may change.
func makePlain(arg *driver.NamedValue) bool {
	switch v := arg.Value.(type) {
	case time.Time:
	case int32:
		arg.Value = int64(v)
	case uint32:
		arg.Value = int64(v)
	default:
		return false
	}
	return true
}

// MayRunCode reports whether the conversion of args may call the program's code.
func MayRunCode(args []driver.NamedValue) bool {
	for i := range args {
		switch args[i].Value.(type) {
		case nil, int64, float64, bool, []byte, string, time.Time, int, int32, uint, uint32, uint64, float32:
		default:
			return true
		}
	}
	return false
}

func isPlain(v driver.Value) bool {
	switch v.(type) {
	case nil, int64, float64, bool, []byte, string:
		return true
	}
	return false
}

// convertArg asks the checker, else the column converter, else the default converter. A checker
// that answers ErrSkip passes the argument on to the next.
func (v *Converter) convertArg(nv *driver.NamedValue) error {
	if v.check != nil {
		if err := v.check.CheckNamedValue(nv); err != driver.ErrSkip {
			return err
		}
	}
	if v.column != nil {
		if err := v.convertColumn(nv); err != driver.ErrSkip {
			return err
		}
	}
	if isPlain(nv.Value) {
		return nil
	}
	var err error
	nv.Value, err = driver.DefaultParameterConverter.ConvertValue(nv.Value)
	return err
}

func (v *Converter) convertColumn(nv *driver.NamedValue) error {
	i := nv.Ordinal - 1
	if v.want >= 0 && v.want <= i {
		return nil // Convert reports the wrong count afterwards
	}
	if valuer, ok := nv.Value.(driver.Valuer); ok {
		value, err := valueOf(valuer)
		if err != nil {
			return err
		}
		if !driver.IsValue(value) {
			return fmt.Errorf("non-subset type %T returned from Value", value)
		}
		nv.Value = value
	}
	arg := nv.Value
	value, err := v.column.ColumnConverter(i).ConvertValue(arg)
	if err != nil {
		return err
	}
	if !driver.IsValue(value) {
		return fmt.Errorf("driver ColumnConverter error converted %T to unsupported type %T", arg, value)
	}
	nv.Value = value
	return nil
}

var valuerType = reflect.TypeFor[driver.Valuer]()

// valueOf calls Value. But a nil pointer, whose element type has the method, is NULL
// (golang.org/issue/8415).
func valueOf(v driver.Valuer) (driver.Value, error) {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() && rv.Type().Elem().Implements(valuerType) {
		return nil, nil
	}
	return v.Value()
}

func describe(nv *driver.NamedValue) string {
	if nv.Name == "" {
		return fmt.Sprintf("$%d", nv.Ordinal)
	}
	return fmt.Sprintf("with name %q", nv.Name)
}

var errNamedArgs = errors.New("sql: driver does not support the use of Named Parameters")

// positional returns the arguments in the form for drivers without context methods, or the error of ctx.
func positional(ctx context.Context, named []driver.NamedValue) ([]driver.Value, error) {
	args := make([]driver.Value, len(named))
	for i, nv := range named {
		if nv.Name != "" {
			return nil, errNamedArgs
		}
		args[i] = nv.Value
	}
	return args, ctx.Err()
}

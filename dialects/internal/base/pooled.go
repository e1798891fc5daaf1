package base

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
)

// refusePool returns an error if c can be seen to take its connections from a
// pool: a struct with a set field of a type called Pool (as pgxpool's is), or
// with a *sql.DB in it. Two pools, one on top of the other, both try to keep and check a
// connection, and to bound the number of connections.
func refusePool(c driver.Connector) error {
	v := reflect.ValueOf(c)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Pointer || f.IsNil() {
			continue
		}
		if t := f.Type(); t == reflect.TypeFor[*sql.DB]() || t.Elem().Name() == "Pool" && t.Elem().PkgPath() != "sync" {
			return fmt.Errorf("the connector takes its connections from a %v, and two pools fight; %w", t, errWrapWithoutPool)
		}
	}
	return nil
}

var errWrapWithoutPool = errors.New("wrap a connector that dials, or use a DSN")

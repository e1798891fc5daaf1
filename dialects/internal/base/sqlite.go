package base

import (
	"database/sql/driver"
	"reflect"
	"strings"
)

// IsSQLite reports whether d is a driver of SQLite, by the path of its package: modernc.org/sqlite,
// mattn/go-sqlite3, ncruces/go-sqlite3, glebarez/go-sqlite, and forks of them. An import of such a
// package would bring a second SQLite into the program, need cgo, or register a name twice.
func IsSQLite(d driver.Driver) bool {
	t := reflect.TypeOf(d)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && (strings.Contains(t.PkgPath(), "sqlite") || strings.Contains(t.PkgPath(), "sqlcipher"))
}

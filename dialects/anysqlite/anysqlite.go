// Package anysqlite is the dialect of SQLite for the connectors of other drivers than that of
// package dialects/sqlite, such as mattn/go-sqlite3. It links no driver. A blank import registers it:
//
//	import _ "github.com/pooldriver/pooldriver/dialects/anysqlite"
package anysqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/anysqlite"
)

func init() { dialects.Register(dialect{}) }

// dialect is SQLite's. It has a name of its own because dialects/sqlite may be linked, too.
type dialect struct{ anysqlite.Dialect }

// Name is "anysqlite".
func (dialect) Name() string { return "anysqlite" }

// Package sqlite is the dialect of SQLite, in process and without cgo, by
// modernc.org/sqlite. A blank import registers it:
//
//	import _ "github.com/pooldriver/pooldriver/dialects/sqlite"
//
// # DSN
//
//	sqlite:FILE?PARAMETERS    a file; sqlite:///abs/file means the same
//	file:PATH?PARAMETERS      a URI as SQLite reads it
//	:memory:                  a database in memory
//
// Parameters are those of modernc.org/sqlite (_pragma, _txlock, …) and of
// SQLite's URIs (mode, immutable, …). They reach every connection. Under
// "sqlite:", unlike in the bare driver, SQLite's own parameters are not lost
// when the name is no URI.
//
// A file's name that has one of & ; , and a = after it is refused, and so is an @ between sqlite://
// and the first slash: a mistyped DSN may have a key or a password there, and errors show the
// file's name.
//
// # Memory
//
// A database in memory (an empty name, :memory:, mode=memory) is one database
// for all connections of one DSN that was parsed, and lives as long as its
// pool. See memory.go. With Wrap, the connector decides about this.
//
// # Transactions
//
// SQLite does not show in its SQL whether a transaction is open, and the driver does not give
// access to sqlite3_get_autocommit; the package anysqlite shows how SQLite is asked.
package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/anysqlite"
)

func init() { dialects.Register(dialect{}) }

// dialect is SQLite's with a driver. Its Wrap takes connectors of other drivers of SQLite, too.
type dialect struct{ anysqlite.Dialect }

var (
	_ dialects.Dialect        = dialect{}
	_ dialects.SettingsKeeper = dialect{}
	_ dialects.SandboxJudge   = dialect{}
)

func (dialect) Claim(dsn string) dialects.Claim { return claim(dsn) }

func (dialect) Parse(dsn string) (dialects.Template, error) {
	src, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return newTemplate(src), nil
}

// registeredDriver is the driver with which functions, collations and connection hooks were
// registered. A new sqlite.Driver would know none of them.
var registeredDriver = sync.OnceValue(func() driver.Driver {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic("dialects/sqlite: the driver is linked but not registered: " + err.Error())
	}
	defer func() { _ = db.Close() }()
	return db.Driver()
})

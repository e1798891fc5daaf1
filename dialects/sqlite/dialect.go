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
// pool. See memory.go. With Wrap, the connector decides about this; see wrap.go.
//
// # Transactions
//
// SQLite does not show in its SQL whether a transaction is open, and the driver does not give
// access to sqlite3_get_autocommit; status.go shows how SQLite is asked.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	sqlitedriver "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

func init() { dialects.Register(dialect{}) }

type dialect struct{ classifier.Texts }

var (
	_ dialects.Dialect   = dialect{}
	_ dialects.Outliner  = dialect{}
	_ dialects.ReadJudge = dialect{}
)

func (dialect) Name() string { return "sqlite" }

func (dialect) Claim(dsn string) dialects.Claim { return claim(dsn) }

func (dialect) Parse(dsn string) (dialects.Template, error) {
	src, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return newTemplate(src), nil
}

func (dialect) Wrap(c driver.Connector) (dialects.Template, error) { return wrap(c) }

const (
	busy          = 5  // SQLITE_BUSY, and SQLITE_BUSY_SNAPSHOT with others in its higher bits
	interrupted   = 9  // SQLITE_INTERRUPT
	schemaChanged = 17 // SQLITE_SCHEMA
)

// Diagnose knows four errors. When a schema has changed, the driver itself prepares the statement
// again, several times; if the error still comes, nothing was executed. A write that is interrupted
// (its context has ended) rolls the whole transaction back. A COMMIT that finds the database busy
// leaves the transaction open.
func (dialect) Diagnose(err error) dialects.Diagnosis {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return dialects.TxEnded // the driver's word for interrupted
	}
	if classifier.SaysUnknown(err) {
		return dialects.UnknownName
	}
	var e *sqlitedriver.Error
	if !errors.As(err, &e) {
		return 0
	}
	switch e.Code() & 0xff {
	case busy:
		return dialects.Conflict
	case schemaChanged:
		return dialects.StaleStatement
	case interrupted:
		return dialects.TxEnded
	}
	return 0
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

//go:build odbc && cgo

package odbc

import (
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"

	odbcdriver "github.com/alexbrainman/odbc"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/mysql"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

func init() { dialects.Register(dialect{}) }

// dialect reads DSNs. The templates that it makes have their own dialect.
type dialect struct{ undecided }

var _ dialects.Dialect = dialect{}

func (dialect) Claim(dsn string) dialects.Claim { return claim(dsn) }

func (dialect) Parse(dsn string) (dialects.Template, error) {
	src, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return newTemplate(src), nil
}

func (dialect) Wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil {
		return nil, dialects.ErrNotMine
	}
	if _, ok := c.Driver().(*odbcdriver.Driver); !ok {
		return nil, dialects.ErrNotMine
	}
	return wrap(c)
}

// undecided is what holds for every database.
type undecided struct{}

func (undecided) Name() string { return "odbc" }

// Effect is every effect that the statement may have on any database.
func (undecided) Effect(query string) dialects.Effect {
	return postgres.Classify(query) | mysql.Classify(query) | sqlite.Classify(query) | generic.Classify(query)
}

func (undecided) OnlyReads(string) bool { return false }

func (undecided) AsksBack(string) bool { return false }

func (undecided) TakesLocks(string) bool { return false }

func (undecided) Outline(query string) string { return generic.Dialect{}.Outline(query) }

func (undecided) Diagnose(err error) dialects.Diagnosis { return unknown{}.diagnose(err) }

// SQLState implements dialects.StateTeller.
func (undecided) SQLState(err error) string {
	for _, d := range records(err) {
		return d.State
	}
	return ""
}

// deciding is the dialect of one template. It answers for the database that its
// first connection has named.
type deciding struct {
	dialect
	known atomic.Pointer[database]
}

var (
	_ dialects.Detecting      = (*deciding)(nil)
	_ dialects.SettingsKeeper = (*deciding)(nil)
)

func (d *deciding) Detected() bool { return d.known.Load() != nil }

// decide remembers the database of a connection. All connections of one template lead to the same
// database.
func (d *deciding) decide(db database) error {
	if d.known.CompareAndSwap(nil, &db) {
		return nil
	}
	if before := *d.known.Load(); before.name() != db.name() {
		return otherDatabase(before.name(), db.name())
	}
	return nil
}

func (d *deciding) Effect(query string) dialects.Effect {
	if db := d.known.Load(); db != nil {
		return (*db).Effect(query)
	}
	return d.dialect.Effect(query)
}

func (d *deciding) OnlyReads(query string) bool {
	db := d.known.Load()
	return db != nil && (*db).OnlyReads(query)
}

func (d *deciding) AsksBack(query string) bool {
	db := d.known.Load()
	return db != nil && (*db).AsksBack(query)
}

// Settings are SQLite's, if the database is SQLite.
func (d *deciding) Settings(query string) (settings []dialects.Setting, alone, complete bool) {
	if db := d.known.Load(); db != nil && *db == database(sqlite3{}) {
		return sqlite.Settings(query)
	}
	return nil, false, false
}

func (d *deciding) Diagnose(err error) dialects.Diagnosis {
	if db := d.known.Load(); db != nil {
		return (*db).diagnose(err)
	}
	// A failed dial has named no database. Its error still shows which database refused it.
	return postgresql{}.diagnose(err) | mariadb{}.diagnose(err)
}

// registeredDriver is the only driver with an environment handle.
var registeredDriver = sync.OnceValue(func() driver.Driver {
	db, err := sql.Open("odbc", "")
	if err != nil {
		panic("dialects/odbc: the driver is linked but not registered: " + err.Error())
	}
	defer func() { _ = db.Close() }()
	return db.Driver()
})

package conformance

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// Fake is the fake database with a driver of this shape, behind a wrapper of
// connectors.
func Fake(v fakedb.Variant, wrap func(driver.Connector) driver.Connector) Target {
	open := func(wrap func(driver.Connector) driver.Connector) func(testing.TB) (*sql.DB, *fakedb.Server) {
		return func(testing.TB) (*sql.DB, *fakedb.Server) {
			server := fakedb.NewServer()
			return sql.OpenDB(wrap(server.Connector(v))), server
		}
	}
	bare := func(c driver.Connector) driver.Connector { return c }
	return Target{
		Name:        v.Name,
		SQL:         fakeFlavor,
		fakeBare:    open(bare),
		fakeWrapped: open(wrap),
		mayStop:     v.Features != fakedb.All || v.Quirks != 0,
	}
}

package conformance

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// Ender is a connector that wants to know when a case is over and its database closed.
type Ender interface{ End() }

// Fake is the fake database with a driver of this shape, behind a wrapper of
// connectors, which may be an Ender.
func Fake(v fakedb.Variant, wrap func(driver.Connector) driver.Connector) Target {
	open := func(wrap func(driver.Connector) driver.Connector) func(testing.TB) (*sql.DB, *fakedb.Server, driver.Connector) {
		return func(testing.TB) (*sql.DB, *fakedb.Server, driver.Connector) {
			server := fakedb.NewServer()
			connector := wrap(server.Connector(v))
			return sql.OpenDB(connector), server, connector
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

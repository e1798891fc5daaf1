//go:build !odbc || !cgo

package odbc

import (
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

// What remains of the dialect in a program that was built without the tag odbc,
// or without cgo: it knows its DSNs, and says how to build a program that can
// use them.

func init() { dialects.Register(missing{}) }

type missing struct{ generic.Dialect }

func (missing) Name() string { return "odbc" }

func (missing) Claim(dsn string) dialects.Claim { return claim(dsn) }

var errMissing = errors.New("this program was built without ODBC: install unixODBC's headers (Debian: unixodbc-dev) and the database's ODBC driver " +
	"(odbc-postgresql, odbc-mariadb, libsqliteodbc), and build with cgo and the tag, CGO_ENABLED=1 go build -tags odbc")

func (missing) Parse(string) (dialects.Template, error) { return nil, errMissing }

func (missing) Wrap(driver.Connector) (dialects.Template, error) { return nil, dialects.ErrNotMine }

package stubdialect

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

// Database is a *Stub, or a type that embeds one.
type Database interface {
	dialects.Dialect
	dialects.OwnDialect
	stub() *Stub
}

func (s *Stub) stub() *Stub { return s }

// Dialect is the dialect of the whole Database, and not of the Stub in it.
func (s *Stub) Dialect() dialects.Dialect { return s.outer }

// Connector returns the connector from which pooldriver.Wrap makes a pool of db.
func Connector(db Database) driver.Connector {
	db.stub().outer = db
	return connector{db}
}

type connector struct{ db Database }

func (connector) Connect(context.Context) (driver.Conn, error) {
	return nil, errors.New("stub: this connector is for pooldriver.Wrap alone")
}

func (c connector) Driver() driver.Driver { return c.db.Driver() }

// finder is the dialect that is registered. It knows the connector of a stub, whose
// template brings the dialect.
type finder struct{ generic.Dialect }

func init() { dialects.Register(finder{}) }

func (finder) Name() string { return Name }

func (finder) Wrap(c driver.Connector) (dialects.Template, error) {
	if c, ok := c.(connector); ok {
		return c.db, nil
	}
	return nil, dialects.ErrNotMine
}

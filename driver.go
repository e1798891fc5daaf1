package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

func init() { sql.Register("pooldriver", Driver{}) }

// Driver is registered with database/sql as "pooldriver", so that
// sql.Open("pooldriver", dsn) works for those who can only name a driver. Each
// sql.Open makes a Connector, and so a pool, of its own.
type Driver struct{}

var _ driver.DriverContext = Driver{}

// OpenConnector parses the DSN, and returns its mistakes at once. It opens
// nothing.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	c := New(dsn)
	if c.err != nil {
		return nil, c.err
	}
	return c, nil
}

// Open is for callers that know no driver.DriverContext. The connection that it returns has its
// own pool, with all the DSN's pool_ parameters. The pool ends with the connection.
func (d Driver) Open(dsn string) (driver.Conn, error) {
	c, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	own := c.(*Connector)
	return own.source.Conn(context.Background(), own.close), nil
}

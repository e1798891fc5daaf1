package fakedb

import (
	"context"
	"database/sql/driver"
	"io"
)

// Connector returns a connector to the server whose driver is of the variant.
func (s *Server) Connector(v Variant) driver.Connector {
	c := &connector{server: s, variant: v}
	if v.Features.Has(ConnectorCloser) {
		return closingConnector{c}
	}
	return c
}

// Driver returns the variant's driver. Its data source name is of no meaning,
// except that the name "bad" is refused.
func (s *Server) Driver(v Variant) driver.Driver {
	d := &fakeDriver{server: s, variant: v}
	if v.Features.Has(DriverContext) {
		return contextDriver{d}
	}
	return d
}

type connector struct {
	server  *Server
	variant Variant
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	return c.server.connect(ctx, Connect, c.variant)
}

func (c *connector) Driver() driver.Driver { return c.server.Driver(c.variant) }

type closingConnector struct{ *connector }

var _ io.Closer = closingConnector{}

// Close is only logged: what it leaves open, the caller has left open.
func (c closingConnector) Close() error {
	after, err := c.server.enter(context.Background(), nil, CloseDriver, "", nil)
	return c.server.finish(after, 0, err)
}

type fakeDriver struct {
	server  *Server
	variant Variant
}

func (d *fakeDriver) Open(name string) (driver.Conn, error) {
	if name == "bad" {
		return nil, ErrBadName
	}
	return d.server.connect(context.Background(), DriverOpen, d.variant)
}

type contextDriver struct{ *fakeDriver }

func (d contextDriver) OpenConnector(name string) (driver.Connector, error) {
	if _, err := d.server.enter(context.Background(), nil, OpenConnector, name, nil); err != nil {
		return nil, err
	}
	if name == "bad" {
		return nil, ErrBadName
	}
	return d.server.Connector(d.variant), nil
}

package postgres

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
)

// FromConfig returns a connector for pooldriver.Wrap, whose connections are dialled by config as New dials by a DSN: roles, health
// checks, cancelling, cleaning in place, statement cache. pgx.ParseConfig makes config, and the program may change it before
// this call; FromConfig keeps a copy. What New does not find in a DSN is done as pgx does it:
//
//   - A Tracer sees each call, so nothing is pipelined.
//   - AfterConnect may set up a session, which cleaning would undo: what has changed its session is closed.
//   - Files of certificates and passwords are not read again.
//   - pool_replicas needs the DSN: give it to New.
func FromConfig(config *pgx.ConnConfig) driver.Connector { return &configured{config.Copy()} }

// configured is a connector whose configuration wrap takes. By itself it connects as pgx's own does.
type configured struct{ config *pgx.ConnConfig }

func (c *configured) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := stdlib.GetConnector(*c.config.Copy()).Connect(ctx)
	if err != nil {
		return nil, dialError(targetOf(c.config, c.config.User), c.config.Password, err)
	}
	return conn, nil
}

func (c *configured) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func (c *configured) template() (dialects.Template, error) {
	if c.config.Host == "" { // pgx panics at an empty one
		return nil, errors.New("the config names no host: pgx.ParseConfig makes one")
	}
	t, err := templateOf(c.config.Copy(), c.config.User)
	if err != nil {
		return nil, err
	}
	return t, nil
}

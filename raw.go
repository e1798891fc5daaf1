package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// Raw calls fn with the driver's own connection behind conn, for what only the
// driver can do: COPY and LISTEN with pgx, backups with SQLite. (conn.Raw gives
// the virtual connection, on which a type assertion to the driver's type
// fails.)
//
//	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
//		pg := dc.(*stdlib.Conn).Conn()
//		_, err := pg.CopyFrom(ctx, …)
//		return err
//	})
//
// The connection is fn's until it returns; fn must not keep it, close it, or
// use conn. What fn does is not seen by us, so the session is cleaned
// afterwards, when conn is closed (not with ResetOff). ctx is for taking a
// connection from the pool, where conn has none yet; fn has its own. An error of
// fn is returned as it is; driver.ErrBadConn closes the connection. If fn panics
// the connection is closed, and the panic goes on.
func Raw(ctx context.Context, sqlConn *sql.Conn, fn func(driver.Conn) error) error {
	return sqlConn.Raw(func(dc any) error {
		c, ok := dc.(*conn)
		if !ok {
			return errors.New("pooldriver: Raw was given a connection of another driver")
		}
		return c.raw(ctx, fn)
	})
}

func (c *conn) raw(ctx context.Context, fn func(driver.Conn) error) error {
	var t try
	if err := c.binding.start(ctx, c.connector, &t); err != nil {
		return err
	}
	c.binding.touched = true
	const anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared
	t.real.effect |= anything
	t.real.running++ // a panic of fn costs the connection
	err := fn(t.real.conn)
	t.real.running--
	t.real.settled(anything, err)
	return err
}

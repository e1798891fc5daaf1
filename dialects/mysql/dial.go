package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects/internal/opaque"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
)

// link is a connection of the driver with the wire under it, which is nil where
// the driver or the program dialled by itself.
type link struct {
	conn driver.Conn
	wire *wire.Conn
}

// wired reports whether connections of a network are dialled here.
func wired(network string) bool {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
		return true
	}
	return false
}

// dial opens a connection. c belongs to it from then on.
func dial(ctx context.Context, c *mysql.Config) (link, error) {
	var l link
	if wired(c.Net) {
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			l.wire = wire.New(nc, greetingSize)
			return l.wire, nil
		}
	}
	if c.Logger == driverLogger {
		c.Logger = debugLogger{}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return l, scrub(err, c.Passwd)
	}
	l.conn, err = connector.Connect(ctx)
	if err != nil {
		return l, scrub(err, c.Passwd)
	}
	return l, nil
}

// drop closes a connection that was never used.
func (l link) drop() { l.quit(time.Now().Add(quitPatience)) }

// quitPatience is how long a server may take to end an idle connection after
// COM_QUIT. It does so at once; if not, it is asked in another way.
const quitPatience = time.Second

// quit ends an idle connection in good order and reports whether the server has
// been seen to close it.
func (l link) quit(deadline time.Time) bool {
	if l.wire == nil {
		return l.conn.Close() == nil
	}
	l.wire.EndGracefully(deadline)
	_ = l.conn.Close() // whether it helped is seen at the other end
	return l.wire.Ended()
}

// driverLogger is what the driver logs to unless the program has called
// mysql.SetLogger: standard error.
var driverLogger = mysql.NewConfig().Logger

// debugLogger takes the place of standard error. What the driver has to say (a
// connection was closed, a packet out of order) comes back as an error as well.
type debugLogger struct{}

func (debugLogger) Print(v ...any) {
	slog.Debug("mysql driver", "message", strings.TrimSpace(fmt.Sprint(v...)))
}

// dialError is an error of the driver without the password in its text.
// Servers do not send it back; a dial function of the program may.
type dialError struct {
	opaque.Label
	err error
}

func scrub(err error, password string) error {
	if password == "" || !strings.Contains(err.Error(), password) {
		return err
	}
	return &dialError{opaque.Label(strings.ReplaceAll(err.Error(), password, "xxxxx")), err}
}

func (e *dialError) Error() string { return e.String() }

// Is and As reach what Unwrap would hand out, text and all.
func (e *dialError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *dialError) As(target any) bool   { return errors.As(e.err, target) }

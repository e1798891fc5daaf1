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

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// link is a connection of the driver with the wire under it. The wire is nil if the driver or the
// program dialled.
type link struct {
	conn driver.Conn
	wire *wire.Conn
}

// isMariaDB reports whether the greeting of the server says so.
func (l link) isMariaDB() bool { return l.wire != nil && isMariaDB(l.wire.Head()) }

// wired reports whether this package dials the connections of a network, if the program does not.
func wired(network string) bool {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
		return true
	}
	return false
}

// way says how to reach a server. address: one address of the server's name; "": any. patience
// bounds the opening of the network connection; 0: only the context bounds it.
type way struct {
	address  string
	patience time.Duration
	network  dialects.DialFunc // the program's function; nil: ours
}

// open opens the network connection.
func (w way) open(ctx context.Context, network, address string) (*wire.Conn, error) {
	if w.address != "" {
		address = w.address
	}
	if w.network == nil {
		d := net.Dialer{Timeout: w.patience}
		nc, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wire.New(nc, greetingSize), nil
	}
	if w.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.patience)
		defer cancel()
	}
	nc, err := w.network(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return wire.Dialled(nc, network, address, greetingSize), nil
}

// dial opens a connection. c belongs to the connection from then on. target is the text that the
// surrounding errors show.
func dial(ctx context.Context, c *mysql.Config, by way, target string) (link, error) {
	var l link
	if by.network != nil || wired(c.Net) {
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := by.open(ctx, network, address)
			if err != nil {
				return nil, err
			}
			l.wire = nc
			return nc, nil
		}
	}
	if c.Logger == driverLogger {
		c.Logger = debugLogger{}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return l, scrub(err, c.Passwd, target)
	}
	l.conn, err = connector.Connect(ctx)
	if err != nil {
		return l, scrub(err, c.Passwd, target)
	}
	return l, nil
}

// drop closes a connection that was never used.
func (l link) drop() { l.quit(time.Now().Add(quitPatience)) }

// quitPatience bounds the time in which a server ends an idle connection after COM_QUIT. A server
// does so at once. After quitPatience the server is asked in another way.
const quitPatience = time.Second

// quit ends an idle connection in good order and reports whether the server has
// been seen to close it.
func (l link) quit(deadline time.Time) bool {
	if l.wire == nil {
		return l.conn.Close() == nil
	}
	l.wire.EndGracefully(deadline)
	_ = l.conn.Close() // the end of the stream shows whether Close has helped
	return l.wire.Ended()
}

// driverLogger is what the driver logs to unless the program has called
// mysql.SetLogger: standard error.
var driverLogger = mysql.NewConfig().Logger

// debugLogger takes the place of standard error. The driver also returns what it logs (a connection
// was closed, a packet out of order) as an error.
type debugLogger struct{}

func (debugLogger) Print(v ...any) {
	slog.Debug("mysql driver", "message", strings.TrimSpace(fmt.Sprint(v...)))
}

// scrub strikes the password out of an error of the driver. Servers do not send the password back,
// but a proxy or a dial function of the program may. A password that is part of the target, or is
// shorter than four bytes, stays: its absence would give it away. If err contains the password, the
// errors below contain it too, so the chain ends here. The parts of the server's error by which the
// pool decides remain.
func scrub(err error, password, target string) error {
	text := err.Error()
	if len(password) < 4 || strings.Contains(target, password) || !strings.Contains(text, password) {
		return err
	}
	text = redact.Strike(text, password)
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return &mysql.MySQLError{Number: server.Number, SQLState: server.SQLState, Message: redact.Strike(server.Message, password)}
	}
	return errors.New(text)
}

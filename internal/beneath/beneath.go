// Package beneath is what package sandbox does with a Connector, and no program can do: take one of
// its real connections, make a Connector of another template, and stand between the Connector and
// database/sql. Package sandbox finds it by the method Beneath of a virtual connection.
package beneath

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
)

// Beneath is the inside of a Connector.
type Beneath interface {
	Config() *config.Config
	Template() dialects.Template
	// Take takes a real connection from the pool, and waits for it as every borrower does.
	Take(ctx context.Context) (Taken, error)
	// LastStatement returns the outline of the last statement of a session with that number on the server. ours is false if no
	// other user of the Connector has the session.
	LastStatement(process uint64) (outline string, ours bool)
	// ConnectorOver makes a Connector with the same Config over one connection of another template, which is a
	// session.Guards. Dial of t gives the same session again and again. The connection is never checked while
	// it is idle and never too old.
	ConnectorOver(t dialects.Template, o Over) driver.Connector
}

// Over is what is different in the Connector of Beneath.ConnectorOver.
type Over struct {
	Patience time.Duration  // AcquireTimeout
	Watch    func() Watcher // of each virtual connection
}

// Taken is a real connection that was taken. Exactly one of GiveBack and Discard is called.
type Taken interface {
	Session() dialects.Session
	// GiveBack gives back a connection on which statements with that effect have run and no
	// transaction is open. It returns when the connection is clean, or closed.
	GiveBack(effect dialects.Effect)
	// Discard closes the connection.
	Discard()
}

// Conn is a virtual connection, which Connect of a Connector returns.
type Conn interface {
	driver.Conn
	// Beneath is the inside of its Connector; nil: it has none, because ConnectorOver has made it.
	Beneath() Beneath
}

// question is the key of the question that Ask asks.
type question struct{}

// Ask returns the virtual connection behind p, which is one or a wrapper around one: wrappers pass a ping
// on. The connection answers by the context, and sends nothing. nil: none is behind p, and err is that of the ping.
func Ask(ctx context.Context, p driver.Pinger) (_ Conn, err error) {
	var answer atomic.Pointer[Conn] // a wrapper may ping in another goroutine, and give up
	err = p.Ping(context.WithValue(ctx, question{}, &answer))
	if c := answer.Load(); c != nil {
		return *c, nil
	}
	return nil, err
}

// Answer answers a ping of Ask. asked is false for every other ping.
func Answer(ctx context.Context, c Conn) (asked bool) {
	answer, asked := ctx.Value(question{}).(*atomic.Pointer[Conn])
	if asked {
		own := c // so that c itself needs no memory in other pings
		answer.Store(&own)
	}
	return asked
}

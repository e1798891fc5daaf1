// Package beneath is what package sandbox does with a Connector, and no program can do: take one of
// its real connections, and make a Connector of another template. The main package fills it in.
package beneath

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Beneath is the inside of a Connector.
type Beneath interface {
	Dialect() dialects.Dialect
	Template() dialects.Template
	// Take takes a real connection from the pool, and waits for it as every borrower does.
	Take(ctx context.Context) (Taken, error)
	// MaxConns is Config.MaxConns.
	MaxConns() int
	// DeadlockAfter is Config.DeadlockAfter.
	DeadlockAfter() time.Duration
	// AfterConnect is Config.AfterConnect; nil: there is none.
	AfterConnect() func(context.Context, driver.Conn) error
	// Executing returns the server's numbers of the sessions that execute a statement with this outline now.
	// Other users of the Connector have these sessions.
	Executing(outline string) []uint64
	// LastStatement returns the outline of the last statement of such a session. ours is false if none of these
	// users has the session.
	LastStatement(process uint64) (outline string, ours bool)
	// Over makes a Connector with the same Config over one connection of another template, which
	// Dial of t may give several times, one after the other. The connection is never checked while
	// it is idle and never too old.
	Over(d dialects.Dialect, t dialects.Template, o Over) driver.Connector
}

// Over is what is different in the Connector of Beneath.Over.
type Over struct {
	Patience     time.Duration // AcquireTimeout
	AfterConnect func(context.Context, driver.Conn) error
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

// Of returns the inside of a *pooldriver.Connector. ok is false for another connector.
var Of func(c driver.Connector) (b Beneath, ok bool)

// Connected, if set, changes each virtual connection that a Connector makes for database/sql. It is
// set once, before the first connection is made.
var Connected atomic.Pointer[func(of driver.Connector, c driver.Conn) driver.Conn]

package mysql

import (
	"context"
	"database/sql/driver"
	"net"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
	"github.com/pooldriver/pooldriver/internal/pause"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// session is one connection to a server.
type session struct {
	*base.Session // what the driver itself can do
	link
	inner

	killer    *killer
	login     dialects.Credential // the login with which the killer connects, too
	thread    uint64              // the server's number of the connection, as KILL takes it; 0: not known
	home      *home               // nil if there is no wire
	carrier   net.Conn            // sends commands that the driver does not know; nil: impossible
	uncounted bool                // the driver returns ErrBadConn after the server refused

	variables []string // the variables that SetSettings has set

	version string // the server's version, from its greeting
	proofs  *resetProofs

	traits dialects.Traits // of the template, and what the server has told

	role       hosts.Role // what the DSN asks for
	asksRole   bool       // the server was asked for its role, and is asked again
	atConnect  hosts.Server
	host       string // the server, if the DSN names several; passedOver: why other servers were not used
	passedOver string
}

var _ dialects.Session = (*session)(nil)

func newSession(l link, k *killer, t dialects.Template) *session {
	s := &session{Session: base.NewSession(l.conn, t.Target()), link: l, inner: lookInto(unwrap.Conn(l.conn)), killer: k, traits: t.Traits()}
	s.traits.PreparedKeepsTypes = true
	if l.wire != nil {
		s.thread = threadID(l.wire.Head())
		s.traits.PreparedKeepsTypes = keepsTypes(l.wire.Head())
		s.version, _ = greeted(l.wire.Head())
	}
	return s
}

var _ dialects.ConnTraits = (*session)(nil)

func (s *session) Traits() dialects.Traits { return s.traits }

func (s *session) TxStatus() dialects.TxStatus { return s.transaction() }

var _ dialects.LastTxStatus = (*session)(nil)

// LastTxStatus: the driver closes a connection whose context ends, also when the
// statement has just been answered.
func (s *session) LastTxStatus() dialects.TxStatus {
	return s.lastTransaction()
}

// Peek: a server sends an idle connection nothing but its goodbye, or under TLS the ticket of a TLS
// session. A tunnel that was idle for long may have broken without a sign.
func (s *session) Peek() dialects.Liveness {
	if s.wire == nil {
		return dialects.Alive // the driver's own ResetSession looks
	}
	if s.wire.Fresh() {
		return dialects.Alive
	}
	if seen := s.look(); seen != dialects.Alive || s.wire.OnSocket() || s.wire.Idle() <= askAfter {
		return seen
	}
	return dialects.Unsure
}

// askAfter is how long a tunnel may have been idle without a ping.
const askAfter = time.Second

func (s *session) look() dialects.Liveness {
	switch sight, waiting := s.wire.Peek(); {
	case sight == wire.Closed:
		return dialects.Dead
	case sight == wire.Readable && (waiting == nil || s.carrier != net.Conn(s.wire)):
		return dialects.Unsure // it may be TLS's own
	case sight == wire.Readable:
		return dialects.Dead
	}
	return dialects.Alive
}

var _ dialects.Identified = (*session)(nil)

func (s *session) ProcessID() uint64 { return s.thread }

var _ dialects.Severable = (*session)(nil)

func (s *session) Sever() {
	if s.wire != nil {
		s.wire.Sever()
	}
}

func (s *session) Sent() (n uint64, ok bool) {
	if s.wire == nil || s.uncounted {
		return 0, false
	}
	return s.wire.Sent(), true
}

// Rollback also turns autocommit on again if the program has turned it off: otherwise the next
// statement would open the next transaction.
func (s *session) Rollback(ctx context.Context) error {
	if err := execute(ctx, s.conn, "ROLLBACK"); err != nil {
		return err
	}
	if s.known && !s.autocommit() {
		return execute(ctx, s.conn, "SET autocommit = 1")
	}
	return nil
}

// socketPause is a pause after the server has closed an idle connection's socket. The server closes the
// socket first and then removes the connection from its list: a query sent at once still found 15
// of 1000 connections there (MariaDB 10.11), 50 µs later none, and on a machine with few processors
// now and then one more. The server gives back the place in the user's limit before it closes.
const socketPause = 200 * time.Microsecond

// hangUpPatience is how long a server may take to notice that a connection, on which it has nothing
// left to do, was hung up.
const hangUpPatience = 20 * time.Millisecond

// Close ends an idle connection by COM_QUIT and waits for the server's end of
// the stream. If the connection is not idle, a statement may still run. The server does not stop a
// statement for a closed socket: only KILL does.
func (s *session) Close(ctx context.Context) error {
	gone := false
	switch {
	case s.healthy():
		if status := s.TxStatus(); status == dialects.TxOpen || status == dialects.TxImplicit {
			// The server would roll back after it has closed the socket.
			_ = s.Rollback(ctx) // if ROLLBACK cannot be sent, KILL ends the transaction
		}
		deadline := time.Now().Add(quitPatience)
		if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
			deadline = d
		}
		gone = s.quit(deadline)
	case s.wire != nil:
		// The driver has closed the connection, or has rows open and sends no COM_QUIT. A server
		// that waits for a command then ends by the end of our stream.
		gone = s.quit(time.Now().Add(hangUpPatience))
	default:
		_ = s.conn.Close() // whether the server has ended it cannot be seen
	}
	if gone {
		pause.For(ctx, socketPause)
		return nil
	}
	return s.killer.stop(ctx, s.asVictim())
}

// healthy reports whether the connection is idle and the driver trusts it.
func (s *session) healthy() bool {
	v, ok := s.Unwrap().(driver.Validator) // a wrapper may hide it
	return ok && v.IsValid() && (s.wire == nil || s.look() == dialects.Alive)
}

// asVictim is the connection as the killer knows it.
func (s *session) asVictim() victim {
	v := victim{thread: s.thread, login: s.login}
	if s.wire != nil {
		v.local, v.remote = s.wire.LocalAddr().String(), s.wire.RemoteAddr().String()
	}
	return v
}

package postgres

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
	"github.com/pooldriver/pooldriver/dialects/postgres/internal/ahead"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// session is one connection of pgx.
type session struct {
	redact.Label
	outer  driver.Conn // conn, or a wrapper's connection around it
	conn   *stdlib.Conn
	pgx    *pgx.Conn
	pg     *pgconn.PgConn
	wire   *wire.Conn  // under pgx; nil in a wrapped connection
	ahead  *ahead.Conn // between pgx and TLS; nil in a wrapped connection
	stream *wire.Conn  // to peek and to end the stream: wire, or a Conn beside pgx
	sealed bool        // TLS: what waits to be read cannot be understood
	kind   kind        // the kind of the server
	hooked bool        // somebody else's hook may have made the state at connect
	resets bool        // somebody else's hook may make a state for each borrower

	reported [len(reported)]string // the values at connect
	before   map[string][]byte     // the values that settings had before SetSettings

	pipelined pipelineStatements
	asks      asking

	cluster string // the server's system identifier; empty: not asked yet

	mode      pgx.QueryExecMode // the default; 0: not asked yet
	described bool              // pgx has a cache of descriptions

	role       hosts.Role   // what the DSN asks for
	atConnect  hosts.Server // the server at connect
	known      bool         // atConnect is known
	host       string       // the server, if the DSN names several; passedOver: why other servers were not used
	passedOver string
}

// asking is whether the server can tell if a query has written.
type asking uint8

const (
	unknownYet asking = iota
	asksForID
	asksNothing
)

var _ dialects.LastTxStatus = (*session)(nil)

func newSession(conn *stdlib.Conn, label string) *session {
	s := &session{Label: redact.Label(label), outer: conn, conn: conn, pgx: conn.Conn(), pg: conn.Conn().PgConn()}
	nc := s.pg.Conn()
	s.wire = wire.Of(nc)
	if s.stream = s.wire; s.stream == nil {
		s.stream = wire.New(socket(nc), 0)
	}
	_, layered := nc.(interface{ NetConn() net.Conn }) // TLS, or the gate of package ahead, which is below TLS
	s.sealed = layered && bottom(nc) != net.Conn(s.wire)
	s.reported, s.kind = s.reportedNow(), kindOf(s.pg.ParameterStatus)
	s.atConnect, s.known = s.reportedServer()
	return s
}

// bottom looks through TLS.
func bottom(nc net.Conn) net.Conn {
	if c, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return c.NetConn()
	}
	return nc
}

// socket looks through every connection that shows what lies below it: a program's own dialler may
// have put its own TLS under pgx's.
func socket(nc net.Conn) net.Conn {
	for below := bottom(nc); below != nil && below != nc; below = bottom(nc) {
		nc = below
	}
	return nc
}

func (s *session) Conn() driver.Conn { return s.outer }

var _ dialects.Unwrapper = (*session)(nil)

func (s *session) Unwrap() driver.Conn { return s.conn }

// TxStatus is what the server's last ReadyForQuery said, or that a BEGIN waits or was refused.
func (s *session) TxStatus() dialects.TxStatus {
	if s.pg.IsClosed() {
		return dialects.TxLost
	}
	return s.LastTxStatus()
}

// LastTxStatus is the status of a connection that may be closed.
func (s *session) LastTxStatus() dialects.TxStatus {
	switch s.beginState() {
	case ahead.Held:
		return dialects.TxOpen
	case ahead.Refused:
		return dialects.TxFailed
	}
	switch s.pg.TxStatus() {
	case 'I':
		return dialects.TxNone
	case 'T':
		return dialects.TxOpen
	case 'E':
		return dialects.TxFailed
	}
	return dialects.TxUnknown
}

// Peek looks at what the server has sent by itself. For a connection that was idle for long this
// tells too little: a device on the way may have forgotten the connection.
func (s *session) Peek() dialects.Liveness {
	if s.TxStatus() != dialects.TxNone {
		return dialects.Dead // closed, or still used by its last borrower
	}
	if s.wire != nil && s.wire.Fresh() {
		return dialects.Alive
	}
	switch sight, waiting := s.stream.Peek(); {
	case sight == wire.Closed:
		return dialects.Dead
	case sight == wire.Readable && (s.sealed || waiting == nil):
		return dialects.Unsure
	case sight == wire.Readable:
		if said := listen(waiting); said != dialects.Alive {
			return said
		}
	}
	if s.wire != nil && s.wire.Idle() > askAfter {
		return dialects.Unsure
	}
	return dialects.Alive
}

// askAfter is pgx's value: pgx's ResetSession, which is not called here, pings a connection that
// was idle for longer (stdlib.OptionShouldPing). For a wrapped connection ResetSession does so.
const askAfter = time.Second

// listen reads the messages that an idle connection may have waiting: notices, changed settings and
// notifications do no harm; an error is the last message of a server. If the peeked bytes end
// within a message, nobody knows what follows.
func listen(waiting []byte) dialects.Liveness {
	const header = 5 // type, and a length that counts itself but not the type
	for len(waiting) > 0 {
		switch waiting[0] {
		case 'N', 'S', 'A':
		case 'E':
			return dialects.Dead
		default:
			return dialects.Unsure
		}
		if len(waiting) < header {
			return dialects.Unsure
		}
		size := 1 + uint64(binary.BigEndian.Uint32(waiting[1:]))
		if size < header || size > uint64(len(waiting)) {
			return dialects.Unsure
		}
		waiting = waiting[size:]
	}
	return dialects.Alive
}

var _ dialects.Severable = (*session)(nil)

func (s *session) Sever() {
	if s.wire != nil {
		s.wire.Sever()
	}
}

var _ dialects.Identified = (*session)(nil)

func (s *session) ProcessID() uint64 { return uint64(s.pg.PID()) }

// Ping is a round trip with an empty statement.
func (s *session) Ping(ctx context.Context) error { return s.pg.Ping(ctx) }

func (s *session) Sent() (uint64, bool) {
	if s.wire == nil {
		return 0, false
	}
	return s.wire.Sent(), true
}

// Rollback sends ROLLBACK unless the server has said that no transaction is open.
func (s *session) Rollback(ctx context.Context) error {
	if s.ahead != nil {
		s.ahead.EndBegin()
	}
	if s.TxStatus() == dialects.TxNone {
		return nil
	}
	return s.simple(ctx, "ROLLBACK")
}

// simple executes statements by the simple protocol: one round trip, nothing
// prepared.
func (s *session) simple(ctx context.Context, query string) error {
	_, err := s.pg.Exec(ctx, query).ReadAll()
	return err
}

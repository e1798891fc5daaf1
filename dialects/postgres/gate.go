package postgres

import (
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// gate lies between the network and what pgx writes to it, below TLS. While a
// carrier holds a BEGIN, or plays the server, it lets nothing out but the
// carrier's: what goes past that, as pgconn.PgConn.ExecBatch does in pgx 5.12
// and whoever writes to PgConn.Conn, would be executed outside of the
// transaction. It fails, and pgx closes the connection.
type gate struct {
	net.Conn
	shut    atomic.Bool
	passing atomic.Int32 // writes of the carrier's
}

var errGate = errors.New("postgres: a transaction that begins with its first statement cannot begin with this: execute another one first, such as SELECT")

func throughGate(dial pgconn.DialFunc) pgconn.DialFunc {
	return through(dial, func(nc net.Conn, _, _ string) net.Conn { return &gate{Conn: nc} })
}

// Write implements net.Conn.
func (g *gate) Write(p []byte) (int, error) {
	if g.shut.Load() && g.passing.Load() == 0 {
		return 0, errGate
	}
	return g.Conn.Write(p)
}

// NetConn returns what lies below.
func (g *gate) NetConn() net.Conn { return g.Conn }

// gateOf finds the gate under nc, looking through TLS; nil if there is none.
func gateOf(nc net.Conn) *gate {
	g, _ := nc.(*gate)
	if g == nil {
		g, _ = bottom(nc).(*gate)
	}
	return g
}

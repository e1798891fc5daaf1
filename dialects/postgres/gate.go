package postgres

import (
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// gate lies between pgx and the network, below TLS. While a carrier holds a BEGIN, or plays the
// server, the gate lets only the carrier's writes pass. Writes that bypass the carrier, as by
// pgconn.PgConn.ExecBatch in pgx 5.12 or by users of PgConn.Conn, would be executed outside of the
// transaction. They fail, and pgx closes the connection.
type gate struct {
	net.Conn
	shut    atomic.Bool
	passing atomic.Int32 // writes of the carrier
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

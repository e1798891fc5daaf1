package carrier

import (
	"errors"
	"net"
	"sync/atomic"
)

// gate lies between pgx and the network, below TLS. While the carrier holds a BEGIN, or plays the
// server, the gate lets only the carrier's writes pass. Writes that bypass the carrier, as by
// pgconn.PgConn.ExecBatch in pgx 5.12 or by users of PgConn.Conn, would be executed outside of the
// transaction. They fail, and pgx closes the connection.
type gate struct {
	net.Conn
	carrier *Carrier // above TLS
	shut    atomic.Bool
	passing atomic.Int32 // writes of the carrier
}

var errGate = errors.New("postgres: a transaction that begins with its first statement cannot begin with this: execute another one first, such as SELECT")

// Write implements net.Conn.
func (g *gate) Write(p []byte) (int, error) {
	if g.shut.Load() && g.passing.Load() == 0 {
		return 0, errGate
	}
	return g.Conn.Write(p)
}

// NetConn returns what lies below.
func (g *gate) NetConn() net.Conn { return g.Conn }

package ahead

import (
	"errors"
	"net"
	"sync/atomic"
)

// gate lies between pgx and the network, below TLS. While something is to be sent ahead, it lets only
// the writes of Conn pass. Writes that bypass Conn, as by pgconn.PgConn.ExecBatch in pgx 5.12 or by
// users of PgConn.Conn, would be executed outside of the transaction. They fail, and pgx closes the
// connection.
type gate struct {
	net.Conn
	above   *Conn // above TLS
	shut    atomic.Bool
	passing atomic.Int32 // writes of above
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

package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// LockWait is a running statement that waits for a lock on the server, and a session that blocks
// this statement.
type LockWait struct {
	// Conn is the connection that waits: see Holder.Conn. It is 0 for a session of another program that is in the way of one of
	// ours and waits itself. Process is the server's number of the session that waits.
	Conn, Process uint64
	Lock          string // the server's name for the lock: relation, metadata, row
	// BlockerConn is the connection that blocks: see Holder.Conn; 0: no connection of this Connector.
	BlockerConn uint64
	// BlockerProcess is the server's number of the blocking session; 0: the server does not name the
	// session, and the rest is empty.
	BlockerProcess uint64
	BlockerUser    string // user and program of the blocking session, as the server shows them
	// BlockerState is the state of the blocking session in the server's words, for BlockerFor.
	// BlockerStatement is the present or last statement of this session, without literals.
	BlockerState     string
	BlockerFor       time.Duration
	BlockerStatement string
}

// ErrLocksHidden is the error of LockWaits if the server does not show all locks to the user of the
// connection.
var ErrLocksHidden = errors.New("pooldriver: the server does not show all locks to this user")

// lockWaits is Connector.LockWaits.
func lockWaits(ctx context.Context, c *Connector) ([]LockWait, error) {
	conns := map[uint64]uint64{} // by process
	var waiting []uint64
	for _, h := range c.Holders() {
		if h.ProcessID == 0 {
			continue
		}
		conns[h.ProcessID] = h.Conn
		if h.Running && h.Pin != PinRaw {
			waiting = append(waiting, h.ProcessID)
		}
	}
	var found []dialects.LockWait
	var hidden error
	asked, err := c.pool.Ask(ctx, func(s dialects.Session) error {
		finder, ok := c.settings.Dialect.(dialects.LockFinder)
		if !ok || len(waiting) == 0 {
			return s.Ping(ctx)
		}
		var err error
		if found, err = finder.LockWaits(ctx, s, waiting); err != nil {
			hidden = fmt.Errorf("%w: %w", ErrLocksHidden, err)
			return s.Ping(ctx)
		}
		return nil
	})
	switch {
	case !asked:
		err = pool.ErrNoneNow
	case err == nil:
		err = hidden
	}
	all := make([]LockWait, len(found))
	for i, w := range found {
		all[i] = LockWait{
			Conn: conns[w.Waiting], Process: w.Waiting, Lock: w.Lock, BlockerConn: conns[w.Blocker], BlockerProcess: w.Blocker,
			BlockerUser: w.Of, BlockerState: w.State, BlockerFor: w.For, BlockerStatement: c.engine.Outline(&w.Statement),
		}
	}
	return all, err
}

package pooldriver

import (
	"sync/atomic"

	"github.com/pooldriver/pooldriver/pool"
)

// counters are what a connector counts beyond its pool.
type counters struct {
	cleanings, rollbacks, discards, retries atomic.Uint64
	foundDead, dialErrors, orphans          atomic.Uint64
	wrongRoles, stateDropped, txRetries     atomic.Uint64
	stmtHits, stmtMisses                    atomic.Uint64
	readAheads, reclaims                    atomic.Uint64
	buffered                                atomic.Int64
}

// Stats describes a Connector at a moment, and since its beginning. Its own
// fields count since the beginning.
type Stats struct {
	// Pool is the pool of real connections.
	Pool pool.Stats
	// Cleanings counts connections brought back to their state at connect.
	Cleanings uint64
	// Rollbacks counts transactions that were still open when their
	// connection came back (raw BEGIN, or autocommit switched off) or their
	// task ended.
	Rollbacks uint64
	// Discards counts connections closed at their return: lost, in doubt, or
	// beyond cleaning.
	Discards uint64
	// Retries counts operations moved to another connection, because theirs
	// was dead before the server can have executed anything.
	Retries uint64
	// TxRetries counts transactions of InTx with Retry that were run once more, because
	// others were in the way.
	TxRetries uint64
	// FoundDead counts idle connections that turned out dead when taken.
	FoundDead uint64
	// DialErrors counts failed dials.
	DialErrors uint64
	// Orphans counts connections whose end the server did not confirm within
	// 5 s, or refused to. Their places were given to others all the same, so
	// the server may have shown more than MaxConns.
	Orphans uint64
	// WrongRoles counts connections closed because their server was asked and
	// is no longer what the DSN asks for (target_session_attrs).
	WrongRoles uint64
	// StateDropped counts statements that set session state (a setting, an
	// advisory lock, a temporary table) outside of any task, transaction and
	// *sql.Conn. Their state ended with them. The log has one warning for each
	// beginning of such a text, 256 of them at most.
	StateDropped uint64
	// ReadAheads counts rows that were read into memory because their
	// connection was needed, Reclaims those of them whose connection was taken
	// back for others that had waited.
	ReadAheads, Reclaims uint64
	// BufferedBytes is how much of such rows is in memory now.
	BufferedBytes int64
	// StmtHits and StmtMisses count the look-ups of prepared statements.
	StmtHits, StmtMisses uint64
}

// figures makes the Stats.
func (c *core) figures() Stats {
	return Stats{
		Pool:          c.pool.Stats(),
		Cleanings:     c.stats.cleanings.Load(),
		Rollbacks:     c.stats.rollbacks.Load(),
		Discards:      c.stats.discards.Load(),
		Retries:       c.stats.retries.Load(),
		TxRetries:     c.stats.txRetries.Load(),
		FoundDead:     c.stats.foundDead.Load(),
		DialErrors:    c.stats.dialErrors.Load(),
		Orphans:       c.stats.orphans.Load(),
		WrongRoles:    c.stats.wrongRoles.Load(),
		StateDropped:  c.stats.stateDropped.Load(),
		ReadAheads:    c.stats.readAheads.Load(),
		Reclaims:      c.stats.reclaims.Load(),
		BufferedBytes: c.stats.buffered.Load(),
		StmtHits:      c.stats.stmtHits.Load(),
		StmtMisses:    c.stats.stmtMisses.Load(),
	}
}

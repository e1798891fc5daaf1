package binding

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Want is what an operation needs of a binding, and what it has got.
type Want struct {
	session.Statement                 // the statement, if the operation has a text
	TextAt            *string         // Text, for Holders; nil: there is none
	Begins            bool            // it begins a transaction
	Lends             bool            // it is for a function of Raw
	LoanEffect        dialects.Effect // what the function of Raw may do
	Pace              *textcache.Pace // the measured speed of a query that may be in a pipeline; nil: it may not
	Owes              *floor.Floor    // the floor of a read that the primary serves in place of a replica; nil: there is none
	Answer            *session.Answer // the answer of a pipeline, with which the operation needs no connection; nil: there is none

	Conn     *connpool.Conn // the connection that the operation uses
	seat     *Seat          // the seat of Conn; the operation has its lock if locked is true
	Place    *task.Place    // what the context says of tasks; nil: not looked up yet
	Scope    *task.Scope    // the InTx of the context, if it was looked up
	Retried  bool           // the operation has left a dead connection, and runs again
	CameBack bool           // the operation came back from a replica that could not serve it
	away     *Engine        // the engine that counts the operation as unattached until Done; nil: none does
	home     *Engine        // the primary's engine, which does the same while the operation is on a replica
	metered  *connpool.Conn // whose meter has counted the operation
	locked   bool
	claim    claim  // the claim that ends when the seat is unlocked
	measured bool   // Conn's meter measures the operation
	joined   func() // warns that it has joined a transaction; nil: it has not, or the log knows it
}

// has records that the operation has locked s, and has the claim own there.
func (w *Want) has(s *Seat, own claim) {
	w.Conn, w.seat, w.locked, w.claim = s.conn.Load(), s, true, own
}

// Locked reports whether the operation has its connection's lock.
func (w *Want) Locked() bool { return w.locked }

// pins reports whether the operation is known to hold its connection after its end.
func (w *Want) pins() bool {
	return w.Begins || w.Lends || session.NeedsSession(w.Effect)
}

// Measure begins to measure an attempt on a connection that was attached before. Unlock ends
// that.
func (w *Want) Measure() {
	if !w.measured {
		w.measure()
	}
}

// isMeasured records that the meter of its connection has begun to measure the operation.
func (w *Want) isMeasured() { w.measured, w.metered = true, w.Conn }

func (w *Want) measure() {
	r := w.Conn
	w.measured = true
	r.Meter.BeginOperation(w.TextAt, w.Begins || r.Session.Begun(), w.metered == r)
	w.metered = r
}

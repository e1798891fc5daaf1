package binding

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Want is what an operation needs of a binding, and what it has got.
type Want struct {
	session.Statement                 // if it has a text
	TextAt            *string         // Text, for Holders; nil: there is none
	Begins            bool            // it begins a transaction
	Lends             bool            // it is for a function of Raw
	LoanEffect        dialects.Effect // of that function
	Pace              *textcache.Pace // of a query that may be in a pipeline; nil: it may not
	Answer            *session.Answer // of a pipeline: the operation needs no connection; nil: there is none

	Conn      *connpool.Conn // that the operation uses
	seat      *Seat          // of Conn; the operation has its lock if locked is true
	Place     *task.Place    // of its context; nil: nobody has asked
	Scope     *task.Scope    // of its context, if that was looked up
	Retried   bool           // it has left a dead connection
	CameBack  bool           // from a replica that could not serve it
	away      *Engine        // counts it as unattached until Done; nil: none does
	home      *Engine        // the same, of the primary while it is on a replica
	metered   *connpool.Conn // whose meter has counted the operation
	reclaimed bool           // the connection of its checkout was taken back for others
	locked    bool
	counted   bool   // the seat's binding counts it in ops
	measured  bool   // Conn's meter measures the operation
	joined    func() // warns that it has joined a transaction; nil: it has not, or the log knows it
}

// goesOn reports whether the operation has had a connection before. Drain does not refuse such
// an operation.
func (w *Want) goesOn() bool { return w.Retried || w.reclaimed || w.CameBack }

// has records that the operation has locked s. counted: it is counted there.
func (w *Want) has(s *Seat, counted bool) {
	w.Conn, w.seat, w.locked, w.counted = s.conn.Load(), s, true, counted
}

// count records whether the operation is counted on its seat.
func (w *Want) count(counted bool) { w.counted = counted }

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

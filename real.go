package pooldriver

import (
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/fairlock"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/pool"
)

// realConn is one real connection, as the pool keeps it: the dialect's session
// with what was learned of the driver and what has happened on it. Whoever
// holds the lease owns it; where others may look, under its lock.
type realConn struct {
	session        dialects.Session
	conn           driverconn.Conn
	traits         dialects.Traits
	poolGeneration uint64 // of the connector when it was dialled: see Connector.flushOnce
	counts         bool   // the session counts what is sent
	// irreplaceable: the session is; see dialects.Irreplaceable.
	irreplaceable bool

	stmts stmtcache.Cache

	// What nearly every statement writes stands together, to share few lines of the
	// cache.

	lease pool.Lease[*realConn] // of whoever has it now

	// effect is what has run since the session was last clean.
	effect dialects.Effect
	// renamed, where prepared statements age: texts may mean something else since the
	// transaction began, or, outside of one, since the last one.
	renamed bool
	// doubt: a transaction's end failed or its beginning was cut short.
	doubt bool
	// roleDoubt: its server has refused what only a primary does.
	roleDoubt bool
	// broken: never to be lent again.
	broken bool
	// cut: the same, said by somebody who could not get the lock.
	cut atomic.Bool
	// running counts calls into the driver that have not returned. At the
	// end of a checkout it is 0, unless one panicked.
	running int

	// lock is for connections that several may use: those of a task, and
	// those whose rows may be taken back. live are the rows that others have
	// to reckon with; they are touched under lock only.
	lock fairlock.Mutex
	live atomic.Pointer[rows]
	// holder is the binding that the connection is lent to, nil where it is
	// not lent to a task. It changes under lock.
	holder atomic.Pointer[binding]
	seat   seat // what the binding keeps of it

	// schemaGeneration changes whenever tables may have changed that a task's transaction on it
	// has used: when it begins, by a statement that is not known to change data only,
	// and by the rollback of a savepoint, which lets go of locks.
	schemaGeneration uint64
	// deferred is the transaction that begins with the next statement.
	deferred *tx

	// set is the text of the last statement without a task that has set session state.
	set     string
	setArgs []driver.NamedValue // its arguments
	// applied is what it has of what was set on the *sql.DB.
	applied applied

	// discarded: it was not idle when its end began. Written by its last holder.
	discarded bool
	// ended is closed when the server has let go of it, or was given up.
	ended chan struct{}
}

func newRealConn(s dialects.Session, t dialects.Traits, stmts int, generation uint64) *realConn {
	if p, ok := s.(dialects.ConnTraits); ok {
		t = p.Traits()
	}
	r := &realConn{session: s, conn: driverconn.New(s.Conn()), traits: t, poolGeneration: generation, ended: make(chan struct{})}
	r.stmts = stmtcache.New(stmts)
	_, r.counts = s.Sent()
	if i, ok := s.(dialects.Irreplaceable); ok {
		r.irreplaceable = i.Irreplaceable()
	}
	if t.ResetOnlyLooks {
		r.conn.Resetter = nil
	}
	return r
}

// severAfter is for calls of the driver that know no context: one that takes longer
// than limit has its connection cut, where the dialect can do that. spare ends it:
//
//	defer r.spare(r.severAfter(limit))
func (r *realConn) severAfter(limit time.Duration) *time.Timer {
	if s, ok := r.session.(dialects.Severable); ok {
		return time.AfterFunc(limit, s.Sever)
	}
	return nil
}

func (r *realConn) spare(cut *time.Timer) {
	if cut != nil && !cut.Stop() {
		r.broken = true // also where the call has just succeeded
	}
}

// txStatus asks the session where its answer is at hand, or where something
// has happened that makes it worth asking (SQLite: a microsecond).
func (r *realConn) txStatus() dialects.TxStatus {
	if r.traits.StatusKnown || r.doubt || r.effect&dialects.TxControl != 0 {
		return r.session.TxStatus()
	}
	return dialects.TxUnknown
}

// recordStatement is recordEffect for t's statement.
func (r *realConn) recordStatement(t *operation, query string) {
	r.recordEffect(t.effect)
	if t.effect&changesSession != 0 && !t.locked {
		r.sets(query, t.args)
	}
	if r.seat.tx != nil && r.traits.PreparedAges && !(leavesNothing(t.effect) && dialects.OnlyData(query)) {
		r.schemaGeneration++
	}
}

// currentSchema is the schema generation in a task's transaction, else 0.
func (r *realConn) currentSchema() uint64 {
	if r.seat.tx == nil {
		return 0
	}
	return r.schemaGeneration
}

// recordEffect records what a statement is about to do to the session. It is called
// before it is sent: if it fails half way, what it began still counts.
func (r *realConn) recordEffect(e dialects.Effect) {
	r.effect |= e
	if e&dialects.ForgetPrepared != 0 && r.traits.PreparedAges {
		r.renamed = true
	}
	if e&dialects.TxControl != 0 && e&dialects.Suspect == 0 {
		r.seat.hidden = true
	}
}

// recordResult is called after a statement has run. One that changes what earlier
// texts mean makes the statement cache forget them. One that may have to do
// with a transaction and failed leaves it in doubt: not every protocol tells the
// transaction's state with an error. driver.ErrSkip is neither: nothing ran.
func (r *realConn) recordResult(e dialects.Effect, err error) {
	if err != nil || !leavesNothing(e) {
		r.recordResultSlow(e, err)
	}
}

// recordResultSlow is recordResult where there is something to do, so that recordResult is inlined.
func (r *realConn) recordResultSlow(e dialects.Effect, err error) {
	if err == driver.ErrSkip {
		r.set, r.setArgs = "", nil
		return
	}
	if e&dialects.ForgetPrepared != 0 || r.traits.PreparedKeepsTypes && e&dialects.Stateful != 0 {
		r.stmts.MarkAllStale()
	}
	if e&dialects.TxControl != 0 && r.renamed {
		r.txEnds(err == nil && r.txStatus() == dialects.TxNone) // who failed is not asked
	}
	if err != nil {
		r.set, r.setArgs = "", nil
		r.doubt = r.doubt || e&dialects.TxControl != 0
		return
	}
	// The program counts on it from here on, even if the connection is dead
	// before we look at it.
	if e&changesSession != 0 {
		r.seat.stateful = true
	}
	if e&dialects.TxControl != 0 && r.seat.tx == nil {
		status := r.txStatus()
		if last, ok := r.session.(dialects.LastTxStatus); ok && status == dialects.TxLost {
			status = last.LastTxStatus()
		}
		r.seat.byHand = status == dialects.TxOpen || status == dialects.TxFailed || status == dialects.TxLost
	}
}

// txEnds is for the end of a transaction, or of a savepoint that is not the whole: it may
// take back what has changed the meaning of texts. What was prepared since has the types
// of then where a server keeps them.
func (r *realConn) txEnds(whole bool) {
	if r.renamed {
		r.stmts.MarkAllStale()
		r.renamed = !whole
	}
}

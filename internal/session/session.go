// Package session has one session on a database server: the driver's connection with all
// that has happened on it. It knows its transactions, its open rows, its prepared
// statements, what its statements have left behind, and how it is reset.
//
// It does not know who uses it, nor that it is pooled: what goes beyond one session it
// asks its [Holder].
package session

import (
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/fairlock"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// Env is what the sessions of one connector share. It does not change.
type Env struct {
	Dialect dialects.Dialect
	// Statements is the number of prepared statements that a session keeps.
	Statements int
	// CleanTimeout bounds a rollback and a reset, PingTimeout a ping.
	CleanTimeout, PingTimeout time.Duration
	// Buffer is the most that is read into memory of one statement's rows, in bytes,
	// BufferTotal that of all statements, BufferOthers that of all statements where it
	// is done for others that wait.
	Buffer, BufferTotal, BufferOthers int64
	// Buffered is how many bytes of rows are in memory, ReadAheads how many rows were
	// read ahead so far.
	Buffered   *atomic.Int64
	ReadAheads *atomic.Uint64
}

// Holder is what a session asks, and tells, where others are concerned. It is called
// under the session's lock.
type Holder interface {
	// Diagnosed is told what an error says of the server.
	Diagnosed(said dialects.Diagnosis)
	// RowsFailed is told that a statement has failed while its rows were read.
	RowsFailed()
	// StatementsExhausted closes prepared statements of other sessions: the server has
	// as many as it allows.
	StatementsExhausted()
	// CountedOnTx is told that a transaction has ended on which other statements of the
	// task count.
	CountedOnTx(*LostError)
	// Detached is told that a checkout does not need the session any more: its rows
	// are in memory.
	Detached()
}

// Session is one session. Its lock is held while the driver works, and protects all
// fields that are not atomic; methods need the lock unless they say otherwise.
type Session struct {
	fairlock.Mutex

	env    *Env
	server dialects.Session
	conn   driverconn.Conn
	traits dialects.Traits
	holder Holder
	counts bool // the server's session counts what is sent
	// irreplaceable: the session is its whole database, see dialects.Irreplaceable.
	irreplaceable bool

	stmts stmtcache.Cache

	// effect is what has run since the session was last reset.
	effect dialects.Effect
	health health
	// namesChanged: names may resolve differently since the transaction began or,
	// outside of one, since the last one. Only where prepared statements age.
	namesChanged bool
	// roleDoubt: its server has refused what only a primary does.
	roleDoubt bool
	// severed: Sever was called.
	severed atomic.Bool
	// running counts calls of the driver that have not returned. Between two uses it
	// is 0, unless a call panicked.
	running int
	sent    uint64 // the server's count when the last call began

	// What follows is of the present borrower: see Lend.

	// inTask: several may use the session, so statements may join its transaction.
	inTask   bool
	tx       *Tx   // begun by Begin, not ended
	inner    []*Tx // savepoints, the innermost last
	deferred *Tx   // begins with the next statement
	// hiddenTx: a text has said that a transaction begins, and nobody can be asked.
	hiddenTx bool
	// stateful: statements have changed the session, as far as is known.
	stateful bool
	// byHand: the outermost transaction that is open was begun by a text.
	byHand bool
	// schemaGeneration changes whenever tables may have changed that a transaction of
	// the task has used: when it begins, by a statement that is not known to change
	// data only, and by the rollback of a savepoint, which releases locks.
	schemaGeneration uint64

	// rows are those that are read from the driver. They change under the lock.
	rows atomic.Pointer[Rows]
}

// Init makes s the session of server, whose traits are those of its template unless it
// knows better.
func (s *Session) Init(env *Env, server dialects.Session, traits dialects.Traits, holder Holder) {
	if known, ok := server.(dialects.ConnTraits); ok {
		traits = known.Traits()
	}
	s.env, s.server, s.traits, s.holder = env, server, traits, holder
	s.conn = driverconn.New(server.Conn())
	if traits.ResetOnlyLooks {
		s.conn.Resetter = nil
	}
	s.stmts = stmtcache.New(env.Statements)
	_, s.counts = server.Sent()
	if i, ok := server.(dialects.Irreplaceable); ok {
		s.irreplaceable = i.Irreplaceable()
	}
}

// Server is the dialect's session. It needs no lock.
func (s *Session) Server() dialects.Session { return s.server }

// Traits are the driver's. They do not change, and need no lock.
func (s *Session) Traits() *dialects.Traits { return &s.traits }

// Irreplaceable reports whether the session is its whole database. It needs no lock.
func (s *Session) Irreplaceable() bool { return s.irreplaceable }

// DriverConn is the driver's own connection, for Raw.
func (s *Session) DriverConn() driver.Conn {
	if w, ok := s.server.(dialects.Unwrapper); ok {
		return w.Unwrap()
	}
	return s.conn.Driver
}

// Lend begins the time of a borrower: of a task, or of a checkout without one.
func (s *Session) Lend(inTask bool) {
	s.inTask = inTask
	s.hiddenTx, s.stateful, s.byHand = false, false, false
}

// GiveBack ends it. A transaction that is open is the server's affair from here on.
func (s *Session) GiveBack() {
	if s.tx != nil || s.inner != nil || s.deferred != nil {
		s.tx, s.inner, s.deferred = nil, nil, nil
	}
	s.health = s.health.after(txForgotten)
}

// call and returned bracket every call of the driver. A panic leaves running above 0.
func (s *Session) call() {
	s.running++
	if s.counts {
		s.sent, _ = s.server.Sent()
	}
}

func (s *Session) returned() { s.running-- }

// Calls is the number of calls of the driver that have not returned: 0 between two uses,
// but for those that have panicked.
func (s *Session) Calls() int { return s.running }

// Guard calls f, which calls the driver in our place. If f panics, Calls tells.
func (s *Session) Guard(f func() error) error {
	s.running++
	err := f()
	s.running--
	return err
}

// Unsent reports whether nothing was handed to the network since the last call began.
// counted is false where nobody counts.
func (s *Session) Unsent() (unsent, counted bool) {
	if !s.counts {
		return false, false
	}
	n, _ := s.server.Sent()
	return n == s.sent, true
}

// TxStatus asks the server's session where its answer is at hand, or where something has
// happened that makes it worth asking (SQLite: a microsecond).
func (s *Session) TxStatus() dialects.TxStatus {
	if s.traits.StatusKnown || s.health == uncertain || s.health == txGone || s.effect&dialects.TxControl != 0 {
		return s.server.TxStatus()
	}
	return dialects.TxUnknown
}

// Sever cuts the network connection under a call of the driver that does not end. It
// needs no lock: either whoever has the lock sees it at the end, or inspects the session
// later.
func (s *Session) Sever() {
	s.severed.Store(true)
	if c, ok := s.server.(dialects.Severable); ok {
		c.Sever()
	}
}

// MarkSevered is Sever for a session whose present call is left alone.
func (s *Session) MarkSevered() { s.severed.Store(true) }

// Severed reports whether Sever was called. It needs no lock.
func (s *Session) Severed() bool { return s.severed.Load() }

// severAfter is for calls of the driver that know no context: a call that takes longer
// than CleanTimeout has its connection cut, where the dialect can do that. spare ends it:
//
//	defer s.spare(s.severAfter())
func (s *Session) severAfter() *time.Timer {
	if c, ok := s.server.(dialects.Severable); ok {
		return time.AfterFunc(s.env.CleanTimeout, c.Sever)
	}
	return nil
}

func (s *Session) spare(cut *time.Timer) {
	if cut != nil && !cut.Stop() {
		s.MarkUnusable() // also where the call has just succeeded
	}
}

// Diagnose acts on what an error says of the session's server.
func (s *Session) Diagnose(err error) dialects.Diagnosis {
	said := s.env.Dialect.Diagnose(err)
	if said&dialects.RoleDoubt != 0 {
		s.roleDoubt = true
	}
	if said != 0 {
		s.holder.Diagnosed(said)
	}
	return said
}

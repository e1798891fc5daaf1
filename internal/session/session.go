// Package session has one session on a database server: the driver's connection, with its
// transactions, its open rows, its prepared statements and the effects of its statements.
// It also inspects and resets the session between two borrowers.
//
// The package knows neither the users of a session nor the pool. A session calls its
// [Owner] for everything that concerns more than this one session.
package session

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// Env is what the sessions of one connector share. It does not change.
type Env struct {
	*config.Config
	// Buffered is the number of bytes of rows in memory.
	Buffered *atomic.Int64
	// ReadAheads counts the driver.Rows that were read into memory to their end. Hits counts the
	// executions that found their prepared statement, and Misses those that prepared it.
	ReadAheads, Hits, Misses *atomic.Uint64
	// Generations are those of the texts that the program has prepared.
	Generations *stmtcache.Generations
	// Failed is told of each error of the driver for a statement, a row, or the begin or end of a transaction; nil: nobody asks.
	Failed func(err error)
	// Guards makes the sessions those of a test; nil: they are sessions of the server.
	Guards Guards
}

// Owner is who has a session. Its methods are called while nobody else uses the session.
type Owner interface {
	// Diagnosed is called with what an error of the driver says of the server. It is not
	// called for an error that says nothing of the server.
	Diagnosed(said dialects.Diagnosis)
	// Sending is called before a statement is sent that may change the state of the session. If it
	// returns an error, the statement fails with that, and is not sent.
	Sending(ctx context.Context, st *Statement) error
	// Failed is called when a statement has failed, or the driver has returned an error for rows of a
	// statement that had succeeded.
	Failed()
	// StatementsExhausted is called when the server has reached its limit of prepared
	// statements. The owner closes prepared statements of other sessions.
	StatementsExhausted()
	// CompleteSettings is called when a statement names what the session does not know. The owner
	// tries once more to execute the settings of the *sql.DB that have failed on the session, and
	// returns why they fail again.
	CompleteSettings(ctx context.Context) error
	// CountedOnTx is called when a context has ended a transaction in which other
	// statements of the task ran.
	CountedOnTx(*LostError)
	// Detached is called when a checkout does not use the session any more, because its
	// rows are in memory.
	Detached()
}

// Session is one session. One goroutine at a time uses it: the lock is its borrower's (a seat's, in
// package binding), or it has no borrower. "It needs no lock" says of a method that others may call it
// meanwhile.
type Session struct {
	// What every statement touches comes first, to share few cache lines.

	server dialects.Session
	// running counts the calls of the driver that have not returned. A call that has
	// panicked stays counted. Between two operations running is 0 unless a call panicked.
	running int
	sent    uint64 // Sent of server when the last call began
	// reading is the number of rows of the borrower that are open.
	reading int
	counts  bool // server counts what is sent
	// severed: Sever was called.
	severed atomic.Bool
	guard   Guard // nil for most
	// effect is the effect of all statements since the last reset.
	effect dialects.Effect
	health health
	// namesChanged: a statement has changed how names resolve or literals are read, and the end
	// of a transaction may undo that. It is set only under the trait PreparedAges.
	namesChanged bool
	// roleDoubt: the server has refused to write, as a server does that is not a primary.
	roleDoubt bool

	// The following fields, up to byHand, concern the present borrower: see Lend.

	// inTask: the borrower is a task. Several checkouts may use the session, and their
	// statements may join its transaction.
	inTask bool
	// hiddenTx: the text of a statement begins a transaction. It matters where the server
	// does not tell the transaction's state.
	hiddenTx bool
	// txFailed: the driver has returned an error since tx has begun, and TxLost has not asked since.
	txFailed bool
	// stateful: statements of the borrower have changed the session.
	stateful bool
	// byHand: a text, and not BeginTx, has begun the outermost transaction that is open.
	byHand bool
	// schemaGeneration changes whenever a table that the task's transaction has used may
	// have changed: when the transaction begins, with a statement that may change tables,
	// and at the rollback to a savepoint, which releases locks on tables.
	schemaGeneration uint64

	deferred *Tx   // begins with the next statement
	tx       *Tx   // the transaction of BeginTx that is open or deferred
	inner    []*Tx // the open savepoints, the innermost one last

	// rows are the rows that are read from the driver. The field changes under the lock.
	rows atomic.Pointer[Rows]
	// resetContext is for the next call of the driver's ResetSession; nil: none is there.
	resetContext *lazyTimeout
	env          *Env
	settings     settings
	traits       dialects.Traits
	conn         driverconn.Conn

	stmts stmtcache.Cache

	owner Owner
	// irreplaceable: the database ends with the session, see dialects.Irreplaceable.
	irreplaceable bool
	// carrier is server, if its statements carry settings.
	carrier dialects.SettingsCarrier
	// rereader is server, if its driver keeps statements of its own.
	rereader dialects.Rereader
	// debts are the floors of contexts that wait for the position of what was written on the session.
	debts floor.Debts

	// panicked is the value with which the driver has panicked in LeftNothing; nil: it has not.
	panicked any
	// canReset: the driver has a ResetSession, also if it is not called.
	canReset bool
}

// Init makes s the session of server. traits are those of the template; they are not used
// if server has traits of its own.
func (s *Session) Init(env *Env, server dialects.Session, traits dialects.Traits, owner Owner) {
	if known, ok := server.(dialects.ConnTraits); ok {
		traits = known.Traits()
	}
	if env.Guards != nil {
		traits, s.guard = env.Guards.Adapt(traits), env.Guards.Guard()
	}
	s.env, s.server, s.traits, s.owner = env, server, traits, owner
	s.conn = driverconn.New(server.Conn())
	s.canReset = s.conn.Resetter != nil
	if traits.ResetOnlyLooks {
		s.conn.Resetter = nil
	}
	s.stmts = stmtcache.New(env.StmtCache)
	if s.guard != nil {
		s.stmts.CloseBy = s.guard.CloseStmt
	}
	_, s.counts = server.Sent()
	if i, ok := server.(dialects.Irreplaceable); ok && s.guard == nil {
		s.irreplaceable = i.Irreplaceable()
	}
	if c, ok := server.(dialects.SettingsCarrier); ok && c.CarriesSettings() {
		s.carrier = c
	}
	s.rereader, _ = server.(dialects.Rereader)
}

// Server is the dialect's session. It needs no lock.
func (s *Session) Server() dialects.Session { return s.server }

// Traits are the driver's. They do not change, and need no lock.
func (s *Session) Traits() *dialects.Traits { return &s.traits }

// Irreplaceable reports whether the database ends with the session. It needs no lock.
func (s *Session) Irreplaceable() bool { return s.irreplaceable }

// DriverConn is the driver's own connection, for Raw.
func (s *Session) DriverConn() driver.Conn {
	if s.guard != nil {
		s.guard.Lend()
	}
	return s.realConn()
}

func (s *Session) realConn() driver.Conn {
	if w, ok := s.server.(dialects.Unwrapper); ok {
		return w.Unwrap()
	}
	return s.conn.Driver
}

// RawReturned is called when a function of Raw has returned err. It returns the error of Raw: a
// sandbox may have undone what the function has done.
func (s *Session) RawReturned(err error) error {
	if s.guard != nil && err == nil {
		return s.guard.Returned()
	}
	return err
}

// Lend gives the session to a borrower: to a task or, if inTask is false, to a checkout
// without a task.
func (s *Session) Lend(inTask bool) {
	s.inTask = inTask
	s.hiddenTx, s.stateful, s.byHand, s.reading = false, false, false, 0
	s.settings.want = nil
}

// GiveBack takes the session from its borrower. A transaction that is open stays open on
// the server until the session is reset.
func (s *Session) GiveBack() {
	if s.debts.Any() {
		s.settleNow()
		s.debts.Drop() // what is still open
	}
	if s.tx != nil || s.inner != nil || s.deferred != nil {
		s.tx, s.inner, s.deferred = nil, nil, nil
	}
	s.health = s.health.after(txForgotten)
}

// call and returned bracket a call of the driver that may send something. If the driver
// panics, running stays above 0.
func (s *Session) call() {
	s.running++
	if s.counts {
		s.sent, _ = s.server.Sent()
	}
}

func (s *Session) returned() { s.running-- }

// InTask reports whether the borrower is a task.
func (s *Session) InTask() bool { return s.inTask }

// Ping asks the driver for a sign of life.
func (s *Session) Ping(ctx context.Context) error {
	s.call()
	var err error
	if s.guard == nil {
		err = s.conn.Ping(ctx)
	} else {
		err = s.pingUnder(ctx, s.conn.Ping)
	}
	s.returned()
	return err
}

// Command executes a statement of this package or of its caller, and not of the program.
func (s *Session) Command(ctx context.Context, text string, args ...driver.NamedValue) error {
	if s.guard != nil {
		return s.guard.Call(ctx, text, func(ctx context.Context) error { return s.conn.Command(ctx, text, args...) })
	}
	return s.conn.Command(ctx, text, args...)
}

// Calls is the number of calls of the driver that have not returned. Between two operations
// these are the calls that have panicked.
func (s *Session) Calls() int { return s.running }

// Guard calls f, which calls the driver itself. If f panics, Calls counts that.
func (s *Session) Guard(f func() error) error {
	s.running++
	err := f()
	s.running--
	return err
}

// Unsent reports whether nothing was handed to the network since the last call began.
// counted is false where the dialect does not count what is sent.
func (s *Session) Unsent() (unsent, counted bool) {
	if !s.counts {
		return false, false
	}
	n, _ := s.server.Sent()
	return n == s.sent, true
}

// TxStatus is the transaction's state by the server's last answer. Where that answer costs
// something (SQLite: a microsecond), the dialect is asked only if a transaction may be open
// by a text or after an error. Otherwise the status is unknown.
func (s *Session) TxStatus() dialects.TxStatus {
	if s.traits.StatusKnown || s.health == uncertain || s.health == txGone || s.effect&dialects.TxControl != 0 {
		return s.status()
	}
	return dialects.TxUnknown
}

// Sever cuts the network connection, so that a call of the driver that does not end fails.
// It needs no lock. The session is not lent again, because Inspect finds it severed.
func (s *Session) Sever() {
	s.severed.Store(true)
	if sever := s.severer(); sever != nil {
		sever()
	}
}

// MarkSevered has the session closed when it comes back, as Sever does, without cutting the
// network connection.
func (s *Session) MarkSevered() { s.severed.Store(true) }

// Severed reports whether Sever or MarkSevered was called. It needs no lock.
func (s *Session) Severed() bool { return s.severed.Load() }

// severAfter bounds a call of the driver that takes no context. If the call takes longer
// than CleanTimeout, its network connection is cut, where the dialect can do that. spare
// ends the bound:
//
//	defer s.spare(s.severAfter())
func (s *Session) severAfter() *time.Timer {
	if sever := s.severer(); sever != nil {
		return time.AfterFunc(s.env.CleanTimeout, sever)
	}
	return nil
}

func (s *Session) spare(cut *time.Timer) {
	if cut != nil && !cut.Stop() {
		s.MarkUnusable() // the connection is cut, even if the call has succeeded
	}
}

// Diagnose finds what an error of the driver says of the server, records it, and passes it
// to the owner.
func (s *Session) Diagnose(err error) dialects.Diagnosis {
	said := s.env.Dialect.Diagnose(err)
	if s.env.Failed != nil {
		s.env.Failed(err)
	}
	s.txFailed = s.tx != nil
	s.failed()
	if said&dialects.RoleDoubt != 0 {
		s.roleDoubt = true
	}
	if said != 0 {
		s.owner.Diagnosed(said)
	}
	return said
}

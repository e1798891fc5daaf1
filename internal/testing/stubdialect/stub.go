// Package stubdialect is a dialect over the fake database. It knows what a real dialect would know:
// the transaction's state, the bytes sent, how to clean. Tests decide what it says.
//
// Tests use it through the public API: pooldriver.Wrap(stubdialect.Connector(stub)).
package stubdialect

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// Name is the dialect's.
const Name = "stub"

// Stub is the template of a fake database, and the dialect of its connections. A test that wants
// another answer embeds a Stub and overrides the method.
type Stub struct {
	standard
	dialects.Template
	Server *fakedb.Server
	Has    dialects.Traits
	Also   dialects.Effect // of every text

	OnPing  func(context.Context) error
	OnPeek  func() dialects.Liveness
	OnClean func() (bool, error)
	OnBegin func(context.Context) // gets the context of the driver's BeginTx
	Pings   atomic.Int32
	Sending bool // every operation counts as sent
	Blind   bool // nobody counts the bytes of sessions that are dialled from now on

	outer   dialects.Dialect // the stub, or the type that embeds it
	dialing sync.Mutex
}

// standard is the name by which Stub embeds generic.Dialect, because Dialect is a method.
type standard = generic.Dialect

// What Diagnose knows.
var (
	ErrLeaving  = errors.New("stub: server is leaving")
	ErrStale    = errors.New("stub: stale statement")
	ErrConflict = errors.New("stub: another transaction is in the way")
	ErrTooMany  = errors.New("stub: too many prepared statements")
)

// New returns a stub over a fake database of its own. It always knows the status. Its connections have
// every optional interface but driver.NamedValueChecker, without which a text is sent as it is.
func New(traits dialects.Traits) *Stub { return stub(traits, fakedb.All&^fakedb.ConnNamedValueChecker) }

// NewChecking is New for a driver that checks arguments, and takes a sql.Out.
func NewChecking(traits dialects.Traits) *Stub { return stub(traits, fakedb.All) }

func stub(traits dialects.Traits, features fakedb.Features) *Stub {
	traits.StatusKnown = true
	server := fakedb.NewServer()
	template, err := generic.Dialect{}.Wrap(server.Connector(fakedb.Variant{Name: "stub", Features: features}))
	if err != nil {
		panic(err) // Wrap accepts every connector that does not pool
	}
	return &Stub{Template: template, Server: server, Has: traits}
}

func (*Stub) Name() string                          { return Name }
func (s *Stub) Effect(query string) dialects.Effect { return s.standard.Effect(query) | s.Also }
func (s *Stub) Traits() dialects.Traits             { return s.Has }

func (s *Stub) Diagnose(err error) dialects.Diagnosis {
	switch {
	case errors.Is(err, ErrLeaving):
		return dialects.ServerLeaving
	case errors.Is(err, ErrStale):
		return dialects.StaleStatement
	case errors.Is(err, ErrConflict):
		return dialects.Conflict
	case errors.Is(err, ErrTooMany):
		return dialects.TooManyPrepared
	}
	return 0
}

func (s *Stub) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s.dialing.Lock() // the last session opened is this one
	defer s.dialing.Unlock()
	inner, err := s.Template.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return &Session{Session: inner, ID: s.Server.State().Opened, stub: s, blind: s.Blind}, nil
}

// Session is a session of the fake database whose state is known.
type Session struct {
	dialects.Session
	ID    int
	stub  *Stub
	sent  uint64
	blind bool
}

func (s *Session) Conn() driver.Conn {
	conn := s.Session.Conn()
	if s.stub.OnBegin == nil {
		return conn
	}
	return &tellingConn{conn.(FullConn), s.stub.OnBegin}
}

var _ dialects.LastTxStatus = (*Session)(nil)

// FullConn is what the connections of a Session have.
type FullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type tellingConn struct {
	FullConn
	begun func(context.Context)
}

func (c *tellingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.begun(ctx)
	return c.FullConn.BeginTx(ctx, opts)
}

func (s *Session) TxStatus() dialects.TxStatus {
	for _, session := range s.stub.Server.State().Sessions {
		if session.ID != s.ID {
			continue
		}
		if session.InTx {
			return dialects.TxOpen
		}
		return dialects.TxNone
	}
	return dialects.TxLost
}

var _ dialects.Sandboxer = (*Session)(nil)

// Sandbox: nothing stops a statement of the fake database.
func (s *Session) Sandbox() dialects.SandboxTraits {
	return dialects.SandboxTraits{Begin: "BEGIN", Uninterrupted: true}
}

// Interrupt is never called.
func (s *Session) Interrupt(context.Context) error { return nil }

func (s *Session) CleanInTx(ctx context.Context, e dialects.Effect) (bool, error) {
	return s.Clean(ctx, e)
}

var _ dialects.SandboxJudge = (*Stub)(nil)

func (*Stub) SandboxesAlone() bool     { return false }
func (*Stub) Refuses(string) string    { return "" }
func (*Stub) Ignores(string) bool      { return false }
func (*Stub) ReadsOnly(string) error   { return nil }
func (*Stub) LeavesNothing(error) bool { return false }

// LastTxStatus follows from the statements that the session has executed.
func (s *Session) LastTxStatus() dialects.TxStatus {
	last := dialects.TxNone
	for _, e := range s.stub.Server.Events(fakedb.ConnExecCtx) {
		switch {
		case e.Session != s.ID:
		case e.Text == "BEGIN":
			last = dialects.TxOpen
		case e.Text == "COMMIT", e.Text == "ROLLBACK":
			last = dialects.TxNone
		}
	}
	return last
}

func (s *Session) Sent() (uint64, bool) {
	if s.blind {
		return 0, false
	}
	if s.stub.Sending {
		s.sent++
	}
	return s.sent, true
}

func (s *Session) Peek() dialects.Liveness {
	if s.stub.OnPeek == nil {
		return dialects.Alive
	}
	return s.stub.OnPeek()
}

func (s *Session) Ping(ctx context.Context) error {
	s.stub.Pings.Add(1)
	if s.stub.OnPing != nil {
		return s.stub.OnPing(ctx)
	}
	return s.Session.Ping(ctx)
}

func (s *Session) Clean(ctx context.Context, e dialects.Effect) (bool, error) {
	if s.stub.OnClean == nil {
		return s.Session.Clean(ctx, e)
	}
	return s.stub.OnClean()
}

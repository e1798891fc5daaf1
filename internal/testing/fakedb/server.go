package fakedb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Server is the database. Its zero value is not usable, see [NewServer]. All
// methods are safe for concurrent use.
type Server struct {
	mu         sync.Mutex // protects the following fields
	changed    chan struct{}
	sessions   map[int]*session
	lastID     int
	maxOpen    int
	tables     map[string]*table
	executed   []string
	events     []Event
	violations []string
	faults     []*Fault
	refuse     error
}

// Session is what the server knows of one open connection.
type Session struct {
	ID        int
	InTx      bool
	Isolation driver.IsolationLevel // of the open transaction
	ReadOnly  bool                  // of the open transaction
	Vars      map[string]any
	Temp      []string // names of temporary tables
	Prepared  []string // texts of the open prepared statements
	OpenRows  int
	Executed  int // statements executed
}

// State is the truth at one moment.
type State struct {
	Sessions []Session // open connections, oldest first
	Opened   int       // connections ever opened
	MaxOpen  int       // the most that were open at once
	Executed int       // statements executed by all sessions ever
	Events   int       // calls seen
}

// Open is the number of open connections.
func (s State) Open() int { return len(s.Sessions) }

// InTx is the number of open transactions.
func (s State) InTx() int {
	n := 0
	for _, session := range s.Sessions {
		if session.InTx {
			n++
		}
	}
	return n
}

// Prepared is the number of open prepared statements.
func (s State) Prepared() int {
	n := 0
	for _, session := range s.Sessions {
		n += len(session.Prepared)
	}
	return n
}

// OpenRows is the number of result sets that are not closed.
func (s State) OpenRows() int {
	n := 0
	for _, session := range s.Sessions {
		n += session.OpenRows
	}
	return n
}

// NewServer returns an empty database that nobody is connected to.
func NewServer() *Server {
	return &Server{
		changed:  make(chan struct{}),
		sessions: map[int]*session{},
		tables:   map[string]*table{},
	}
}

// State returns the truth of this moment.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked()
}

func (s *Server) stateLocked() State {
	state := State{Opened: s.lastID, MaxOpen: s.maxOpen, Executed: len(s.executed), Events: len(s.events)}
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		state.Sessions = append(state.Sessions, s.sessions[id].describeLocked())
	}
	return state
}

// Await returns when the condition holds, or the context's error. The condition
// is asked again after each change; it must not call the server.
func (s *Server) Await(ctx context.Context, condition func(State) bool) error {
	for {
		s.mu.Lock()
		holds, changed := condition(s.stateLocked()), s.changed
		s.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changedLocked wakes those who await.
func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Executed counts the statements executed whose text contains the given text.
func (s *Server) Executed(containing string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, text := range s.executed {
		if strings.Contains(text, containing) {
			n++
		}
	}
	return n
}

// Events returns the calls seen so far, in order: all, or those named.
func (s *Server) Events(calls ...Call) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []Event
	for _, e := range s.events {
		if len(calls) == 0 || slices.Contains(calls, e.Call) {
			events = append(events, e)
		}
	}
	return events
}

// Violations returns what the driver's caller did although no caller may:
// concurrent use of a connection, use after Close, closing twice.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Table returns the rows of a table that is not temporary, and nil if there is
// no such table.
func (s *Server) Table(name string) [][]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[name]
	if t == nil {
		return nil
	}
	all := make([][]any, 0, len(t.rows))
	for _, r := range t.rows {
		all = append(all, slices.Clone(r.values))
	}
	return all
}

// Kill ends one session, as an administrator would: its transaction is rolled
// back, the connection is gone from the server at once, and its client finds
// out with the next call. It reports whether there was such a session.
func (s *Server) Kill(id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	victim := s.sessions[id]
	if victim == nil {
		return false
	}
	s.endLocked(victim)
	return true
}

// KillAll ends every session and returns their number.
func (s *Server) KillAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.sessions)
	for _, victim := range s.sessions {
		s.endLocked(victim)
	}
	return n
}

func (s *Server) endLocked(x *session) {
	x.rollbackLocked()
	x.dead = true
	delete(s.sessions, x.id)
	s.changedLocked()
}

// Errors of connecting.
var (
	ErrRefused = errors.New("fakedb: connection refused")
	ErrBadName = errors.New("fakedb: bad data source name")
)

// connect opens a session.
func (s *Server) connect(ctx context.Context, call Call, v Variant) (driver.Conn, error) {
	after, err := s.enter(ctx, nil, call, "", nil)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, s.refuse)
	}
	s.lastID++
	x := &session{
		server: s, id: s.lastID, vars: map[string]any{}, temp: map[string]*table{},
		prepared: map[*stmt]bool{},
	}
	s.sessions[x.id] = x
	s.maxOpen = max(s.maxOpen, len(s.sessions))
	s.changedLocked()
	if after != nil {
		s.endLocked(x)
		return nil, after.Err
	}
	c := &conn{session: x, variant: v}
	return connShapes[v.Features&ConnFeatures](c), nil
}

// enter logs a call and lets the fault that is due act. An error is to be
// answered at once. A fault that comes after the work is returned, for finish.
func (s *Server) enter(
	ctx context.Context, x *session, call Call, text string, args []driver.NamedValue,
) (after *Fault, err error) {
	id := 0
	if x != nil {
		id = x.id
	}
	s.mu.Lock()
	s.events = append(s.events, Event{
		Session: id, Call: call, Text: text, Args: cloneArgs(args), Tag: ctx.Value(TagKey{}),
	})
	fault := s.dueLocked(call, id, text)
	s.changedLocked()
	s.mu.Unlock()
	if fault == nil {
		return nil, nil
	}
	if fault.Gate != nil {
		if err := fault.Gate.wait(ctx); err != nil {
			return nil, err
		}
	}
	if fault.After {
		return fault, nil
	}
	return nil, s.act(fault, id)
}

// finish is for calls that did their work: it lets a fault act that comes
// after it.
func (s *Server) finish(after *Fault, id int, err error) error {
	if after == nil || err != nil {
		return err
	}
	return s.act(after, id)
}

func (s *Server) act(f *Fault, id int) error {
	if f.Kill {
		s.Kill(id)
	}
	if f.Panic != nil {
		panic(f.Panic)
	}
	return f.Err
}

func (s *Server) violation(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

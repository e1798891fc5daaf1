package fakedb

import (
	"context"
	"strings"
	"sync"
)

// Fault says at which call what goes wrong. The zero value of each selecting
// field selects everything.
type Fault struct {
	Call    Call   // this method only
	Text    string // only if the statement contains this
	Session int    // only on this connection

	Skip   int  // let so many matching calls pass first
	Times  int  // then act on so many calls; 0 means one
	Always bool // act for ever

	After bool  // do what was asked, then fail
	Err   error // the error to answer
	Panic any   // panic with this value
	Kill  bool  // the connection is lost, its session is gone from the server
	Gate  *Gate // wait here first
}

func (f *Fault) matches(call Call, session int, text string) bool {
	return (f.Call == "" || f.Call == call) &&
		(f.Session == 0 || f.Session == session) &&
		strings.Contains(text, f.Text)
}

// Gate holds calls until it is opened. A call whose context ends goes on at
// once, with the context's error.
type Gate struct {
	entered chan struct{}
	open    chan struct{}
	once    sync.Once
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	// The buffer lets calls enter that no test waits for.
	return &Gate{entered: make(chan struct{}, 1024), open: make(chan struct{})}
}

// Entered receives once for every call that has come to the gate.
func (g *Gate) Entered() <-chan struct{} { return g.entered }

// Open lets all calls pass, those that wait and those to come. It may be
// called again.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

func (g *Gate) wait(ctx context.Context) error {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Inject adds a fault. Faults are tried in the order in which they came; the
// first that matches and is due acts.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// Fail makes the nth call (from 1, counted from now) of this method fail with
// err, before anything is done.
func (s *Server) Fail(call Call, nth int, err error) {
	s.Inject(Fault{Call: call, Skip: nth - 1, Err: err})
}

// Block makes the next call of this method wait at the gate that it returns.
func (s *Server) Block(call Call) *Gate {
	g := NewGate()
	s.Inject(Fault{Call: call, Gate: g})
	return g
}

// Refuse makes every attempt to connect fail with err, until Refuse(nil).
func (s *Server) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// Heal forgets every fault and refusal.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.refuse = nil, nil
}

// dueLocked returns the fault that acts on this call, or nil.
func (s *Server) dueLocked(call Call, session int, text string) *Fault {
	for _, f := range s.faults {
		if !f.matches(call, session, text) || (f.Times <= 0 && !f.Always) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		f.Times--
		due := *f
		return &due
	}
	return nil
}

package clones

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// linger is how long the session of a Shelf outlives its last clone: tests that run one after the
// other do not dial for each. It is short, because tests look for goroutines that were left.
const linger = 100 * time.Millisecond

// Shelf gives clones of one plan to the tests of this process, and makes some ahead. It is safe
// for concurrent use.
//
// A Shelf has a session and a goroutine on the server only while tests have its clones: nobody
// tells a package when the tests of a process end.
type Shelf struct {
	plan Plan

	// turn is held by whoever opens or closes the desk. It is a lock that a context ends.
	turn chan struct{}
	// The fields below are guarded by turn.
	desk   *desk // nil while it is closed
	broken *MigrationError
}

// desk is what an open Shelf has.
type desk struct {
	server server
	users  atomic.Int32 // who have a clone, or wait for one; changed by who has the turn
	stop   context.CancelFunc
	wanted chan struct{} // a clone of the stock was taken
	filler sync.WaitGroup
}

var shelves struct {
	mu  sync.Mutex
	all map[shelfKey]*Shelf // guarded by mu
}

type shelfKey struct {
	kind      Kind
	dsn, hash string
}

// ShelfFor returns the process's shelf for the plan. Plans of the same kind, DSN and hash share a
// shelf, which uses the functions of the first plan.
func ShelfFor(p Plan) *Shelf {
	if p.Kind == SQLiteFile {
		p.DSN = dsn.SQLiteKind(p.DSN)
	}
	shelves.mu.Lock()
	defer shelves.mu.Unlock()
	key := shelfKey{p.Kind, p.DSN, p.Hash}
	s := shelves.all[key]
	if s == nil {
		if shelves.all == nil {
			shelves.all = map[shelfKey]*Shelf{}
		}
		s = &Shelf{plan: p, turn: make(chan struct{}, 1)}
		shelves.all[key] = s
	}
	return s
}

// Clone is the clone of one test.
type Clone struct {
	Name string
	DSN  string

	shelf *Shelf
	desk  *desk
}

// Take returns a clone for the test. If the migrations fail, the error is a MigrationError, for
// this call and for each later one.
func (s *Shelf) Take(ctx context.Context, test string) (c *Clone, err error) {
	d, err := s.enter(ctx, test)
	if err != nil {
		return nil, err
	}
	// Also if the migrations panic, or end the goroutine.
	defer func() {
		if c == nil {
			s.leave(remember(err, test))
		}
	}()
	name, err := d.server.take(ctx, test)
	d.want()
	if name == "" && err == nil {
		name, err = d.server.make(ctx, test)
	}
	if err != nil {
		return nil, err
	}
	return &Clone{Name: name, DSN: d.server.dsn(name), shelf: s, desk: d}, nil
}

// Drop removes the clone. It is called once, instead of Keep.
func (c *Clone) Drop(ctx context.Context) error {
	defer c.shelf.leave(nil)
	return c.desk.server.remove(ctx, c.Name)
}

// Keep leaves the clone for people, and returns the name under which it stays. It is called once,
// instead of Drop.
func (c *Clone) Keep(ctx context.Context, test string) (name string, err error) {
	defer c.shelf.leave(nil)
	return c.desk.server.keep(ctx, c.Name, test)
}

// enter opens the desk unless it is open, and counts a user.
func (s *Shelf) enter(ctx context.Context, test string) (*desk, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.broken != nil {
		return nil, s.broken
	}
	if s.desk == nil {
		server := s.plan.server()
		if err := s.open(ctx, server, test); err != nil {
			s.broken = remember(err, test)
			return nil, err
		}
		s.desk = newDesk(server, s.plan.stock())
	}
	if err := s.desk.server.hold(ctx); err != nil {
		return nil, fmt.Errorf("the session that marks what this process uses was lost, and there is no other: %w", err)
	}
	s.desk.users.Add(1)
	return s.desk, nil
}

// open opens the server. If a migration ends its goroutine, as t.FailNow does, or panics, the
// server is closed.
func (s *Shelf) open(ctx context.Context, server server, test string) (err error) {
	returned := false
	defer func() {
		if !returned {
			s.broken = &MigrationError{Test: test, Err: errNoReturn}
		}
		if !returned || err != nil {
			server.close()
		}
	}()
	err = server.open(ctx)
	returned = true
	return err
}

var errNoReturn = errors.New("the function that runs them did not return: it has panicked, or called FailNow of a test")

// remember returns the error of the migrations, with the test that met it, for the tests that come
// later; nil if err is another error.
func remember(err error, test string) *MigrationError {
	var broken *MigrationError
	if !errors.As(err, &broken) {
		return nil
	}
	return &MigrationError{Test: test, Err: broken.Err}
}

// leave takes a user off, and notes that the migrations are broken.
func (s *Shelf) leave(broken *MigrationError) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if broken != nil && s.broken == nil {
		s.broken = broken
	}
	if s.desk.users.Add(-1) == 0 {
		time.AfterFunc(linger, s.closeIfIdle)
	}
}

func (s *Shelf) closeIfIdle() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.desk == nil || s.desk.users.Load() > 0 {
		return
	}
	s.desk.close()
	s.desk = nil
}

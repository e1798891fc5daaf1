package listen

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a server in memory. A session that was killed still has what it was sent before.
type server struct {
	t *testing.T

	mu       sync.Mutex
	sessions map[*conn]bool
	most     int           // sessions at a time
	dials    int           // so far
	refuse   error         // of dials
	bad      string        // LISTEN refuses this channel
	listens  int           // round trips with LISTEN so far
	relayed  bool          // a pooler is in between
	deaf     bool          // and drops notifications
	silent   chan struct{} // not nil: answers and notifications wait until it is closed
}

var errBad = errors.New("the server refuses this channel")

func newServer(t *testing.T) *server { return &server{t: t, sessions: map[*conn]bool{}} }

// conn is a session.
type conn struct {
	server   *server
	channels map[string]bool
	inbox    [][2]string
	arrived  chan struct{} // has a value when the inbox or dead has changed
	dead     bool
	pings    int
}

func (s *server) dial(context.Context) (Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if s.refuse != nil {
		return nil, s.refuse
	}
	c := &conn{server: s, channels: map[string]bool{}, arrived: make(chan struct{}, 1)}
	s.sessions[c] = true
	s.most = max(s.most, len(s.sessions))
	return c, nil
}

// notify sends a notification to all sessions that listen.
func (s *server) notify(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		if c.channels[channel] && !c.dead && !s.deaf {
			c.inbox = append(c.inbox, [2]string{channel, payload})
			c.wake()
		}
	}
}

// kill ends all sessions.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		c.dead = true
		c.wake()
	}
}

// set changes how the server behaves.
func (s *server) set(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

// listened are the channels that sessions listen to.
func (s *server) listened() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for c := range s.sessions {
		all = append(all, slices.Collect(maps.Keys(c.channels))...)
	}
	slices.Sort(all)
	return all
}

func (s *server) dialled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (c *conn) wake() {
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

// answer is a round trip.
func (c *conn) answer(ctx context.Context, do func() error) error {
	c.server.mu.Lock()
	silent := c.server.silent
	c.server.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.dead {
		return io.ErrUnexpectedEOF
	}
	return do()
}

func (c *conn) Listen(ctx context.Context, channels []string) error {
	return c.answer(ctx, func() error {
		c.server.listens++
		if slices.Contains(channels, c.server.bad) {
			return errBad
		}
		for _, name := range channels {
			c.channels[name] = true
		}
		return nil
	})
}

func (c *conn) Unlisten(ctx context.Context, channels []string) error {
	return c.answer(ctx, func() error {
		for _, name := range channels {
			delete(c.channels, name)
		}
		return nil
	})
}

func (c *conn) Notify(ctx context.Context, channel, payload string) error {
	if err := c.answer(ctx, func() error { return nil }); err != nil {
		return err
	}
	c.server.notify(channel, payload)
	return nil
}

func (c *conn) Wait(ctx context.Context) (channel, payload string, err error) {
	for {
		c.server.mu.Lock()
		if len(c.inbox) > 0 && c.server.silent == nil {
			n := c.inbox[0]
			c.inbox = c.inbox[1:]
			c.server.mu.Unlock()
			return n[0], n[1], nil
		}
		dead := c.dead
		c.server.mu.Unlock()
		if dead {
			return "", "", io.ErrUnexpectedEOF
		}
		select {
		case <-ctx.Done():
			return "", "", ctx.Err()
		case <-c.arrived:
		}
	}
}

func (c *conn) Relayed(ctx context.Context) (relayed bool, err error) {
	err = c.answer(ctx, func() error { relayed = c.server.relayed; return nil })
	return relayed, err
}

func (c *conn) Ping(ctx context.Context) error {
	return c.answer(ctx, func() error { c.pings++; return nil })
}

func (c *conn) Close() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	require.True(c.server.t, c.server.sessions[c], "a connection is closed once")
	delete(c.server.sessions, c)
}

var errRefused = errors.New("the password is wrong")

// hub is a Hub of the server, which is closed at the end of the test.
func (s *server) hub() *Hub {
	h := New(Config{
		Dial: s.dial,
		Outage: func(err error) bool {
			return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
		},
		Denied: func(err error) bool { return errors.Is(err, errRefused) },
		Ping:   30 * time.Second, Timeout: 5 * time.Second,
		Dialled: func(error) {}, Lost: func(error) {}, Overflowed: func(string) {},
	})
	s.t.Cleanup(func() { h.Close(errClosed, time.Second) })
	return h
}

var errClosed = errors.New("closed")

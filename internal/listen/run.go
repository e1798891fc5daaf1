package listen

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/pause"
)

// The pauses between dials are those of a pool in an outage (pool/outage.go). A connection that did not
// last for lasting counts as a dial that has failed.
const (
	shortestPause, longestPause   = 20 * time.Millisecond, 300 * time.Millisecond
	shortestDenied, longestDenied = 100 * time.Millisecond, time.Second
	lasting                       = time.Second
)

// run has the connection while anybody listens. It closes one before it dials the next: the server
// never has two.
func (h *Hub) run() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if !h.begin(cancel) {
			cancel()
			return
		}
		h.work(ctx)
		cancel()
	}
}

// begin reports whether anybody listens. If nobody does, run has ended: the next listener starts it
// again.
func (h *Hub) begin(finish context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.emptyLocked() {
		h.finish = finish
		h.setStateLocked(Connecting, nil)
		return true
	}
	clear(h.channels) // the server sends nothing any more
	h.setStateLocked(Unused, nil)
	h.finish = nil
	close(h.running)
	h.running = nil
	return false
}

func (h *Hub) setStateLocked(s State, conn Conn) {
	if h.conn = conn; h.state != s {
		h.state, h.since = s, time.Now()
	}
}

// work dials, serves, and dials again, until ctx ends because nobody listens any more, or until a dial
// before the first success has an error that the listeners are to get.
func (h *Hub) work(ctx context.Context) {
	served := false
	for next := time.Duration(0); ctx.Err() == nil; pause.For(ctx, next) {
		conn, err := h.connect(ctx)
		if err == nil {
			served = true
			h.config.Dialled(nil)
			begun := time.Now()
			h.serve(ctx, conn)
			if next = pause.Longer(next, shortestPause, longestPause); time.Since(begun) >= lasting {
				next = 0
			}
			continue
		}
		switch {
		case ctx.Err() != nil:
			return
		case !served && !h.config.Outage(err):
			h.end(nil, err)
			return
		case h.config.Denied(err):
			next = pause.Longer(next, shortestDenied, longestDenied)
		default:
			next = pause.Longer(next, shortestPause, longestPause)
		}
		h.config.Dialled(err)
	}
}

// connect dials, and shows that notifications arrive.
func (h *Hub) connect(ctx context.Context) (Conn, error) {
	conn, err := h.config.Dial(ctx)
	if err != nil {
		return nil, err
	}
	proven, err := h.probe(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unproven = !proven
	return conn, nil
}

// serve listens on conn until it is lost, or ctx ends.
func (h *Hub) serve(ctx context.Context, conn Conn) {
	s := service{hub: h, conn: conn, proven: time.Now()}
	err := s.run(ctx)
	s.drain()
	h.leaveConn(s.proven)
	if ctx.Err() == nil {
		h.Losses.Add(1)
		h.config.Lost(err)
	}
	conn.Close()
}

// leaveConn notes that the server sends nothing any more. All that was committed before proven was
// delivered.
func (h *Hub) leaveConn(proven time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake = nil
	h.setStateLocked(Connecting, nil)
	for name, c := range h.channels {
		if c.live {
			c.live, c.lost = false, proven
		}
		if len(c.queues) == 0 {
			delete(h.channels, name)
		}
	}
}

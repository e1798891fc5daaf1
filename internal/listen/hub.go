package listen

import (
	"context"
	"slices"
	"sync"
	"time"
)

// State is what a Hub does.
type State uint8

// The states.
const (
	Unused     State = iota // nobody listens, and there is no connection
	Connecting              // it dials, or waits before the next dial
	Listening
	Unproven // Listening, and nobody knows whether notifications arrive
)

// Hub has the listeners, and the connection that serves them all. It is safe for concurrent use.
type Hub struct {
	Counters
	config Config

	mu       sync.Mutex          // protects following fields
	channels map[string]*channel // those with listeners, and those that the server still sends
	closed   error               // the error of Close
	running  chan struct{}       // closed when the goroutine run ends; nil: it does not run
	finish   context.CancelFunc  // ends the work of run: nobody listens
	wake     context.CancelFunc  // ends its wait for notifications: channels have changed
	changed  bool                // since run has last compared channels with what the server sends
	state    State
	since    time.Time // when state began
	conn     Conn      // the connection, in the state Listening
	unproven bool      // the probe of the last connection has shown nothing
}

// channel is one channel of the server.
type channel struct {
	queues []*queue
	live   bool      // the server sends its notifications to the present connection
	lost   time.Time // not live: notifications may be missing that were committed later
}

// New returns a Hub. It opens nothing.
func New(c Config) *Hub {
	return &Hub{config: c, channels: map[string]*channel{}, since: time.Now()}
}

// join adds a listener. The first one starts run.
func (h *Hub) join(q *queue) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return h.closed
	}
	c := h.channels[q.channel]
	if c == nil {
		c = &channel{}
		h.channels[q.channel] = c
	}
	c.queues = append(c.queues, q)
	switch {
	case c.live:
		q.lose(time.Time{}, time.Now())
	case h.running == nil:
		h.running = make(chan struct{})
		go h.run()
	default:
		h.wakeLocked()
	}
	return nil
}

// leave removes a listener, if it was not removed before it was ended.
func (h *Hub) leave(q *queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[q.channel]
	if c == nil {
		return
	}
	place := slices.Index(c.queues, q)
	if place < 0 {
		return
	}
	if c.queues = slices.Delete(c.queues, place, place+1); len(c.queues) > 0 {
		return
	}
	if !c.live {
		delete(h.channels, q.channel)
	}
	if h.wakeLocked(); h.emptyLocked() {
		h.finishLocked()
	}
}

func (h *Hub) emptyLocked() bool {
	for _, c := range h.channels {
		if len(c.queues) > 0 {
			return false
		}
	}
	return true
}

func (h *Hub) wakeLocked() {
	h.changed = true
	if h.wake != nil {
		h.wake()
	}
}

func (h *Hub) finishLocked() {
	if h.finish != nil {
		h.finish()
	}
}

// end ends listeners with err: those of one channel, or all if c is nil. With the last listener the
// connection ends.
func (h *Hub) end(c *channel, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(c, err)
}

func (h *Hub) endLocked(c *channel, err error) {
	for name, other := range h.channels {
		if c != nil && c != other {
			continue
		}
		for _, q := range other.queues {
			q.end(err)
		}
		if other.queues = nil; !other.live {
			delete(h.channels, name)
		}
	}
	if h.emptyLocked() {
		h.finishLocked()
	}
}

// Close ends all listeners with err, closes the connection, and waits for that no longer than patience.
// No listener can join any more.
func (h *Hub) Close(err error, patience time.Duration) {
	h.mu.Lock()
	if h.closed == nil {
		h.closed = err
	}
	h.endLocked(nil, err)
	running := h.running
	h.mu.Unlock()
	if running == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-running:
	case <-timer.C:
	}
}

// lose counts the gap that a listener gets, unless it is part of one that is counted already.
func (h *Hub) lose(q *queue, since, until time.Time) {
	if q.lose(since, until) {
		h.Gaps.Add(1)
	}
}

// deliver passes a notification on. It was committed after since.
func (h *Hub) deliver(name, payload string, since time.Time) {
	h.Received.Add(1)
	h.mu.Lock()
	var queues []*queue
	if c := h.channels[name]; c != nil && c.live {
		queues = c.queues
	}
	full := false
	for _, q := range queues {
		dropped, gap := q.put(payload, since)
		h.Dropped.Add(uint64(dropped))
		if gap {
			h.Gaps.Add(1)
		}
		full = full || dropped > 0
	}
	h.mu.Unlock()
	if full {
		h.config.Overflowed(name)
	}
}

// Look is what people may see of a Hub.
type Look struct {
	State     State
	Since     time.Time // when State began
	Channels  []string  // that have listeners, in alphabetical order
	Listeners int
	Conn      Conn // the connection, in the state Listening; call only methods without a round trip
}

// Look looks.
func (h *Hub) Look() Look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := Look{State: h.state, Since: h.since, Conn: h.conn}
	if h.state == Listening && h.unproven {
		l.State = Unproven
	}
	for name, c := range h.channels {
		if n := len(c.queues); n > 0 {
			l.Listeners += n
			l.Channels = append(l.Channels, name)
		}
	}
	slices.Sort(l.Channels)
	return l
}

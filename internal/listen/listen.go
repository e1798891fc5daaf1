// Package listen passes the notifications of a server on to the listeners of a Connector. All
// listeners share one connection, which is opened for the first listener, replaced when it is lost,
// and closed after the last listener. docs/adr/0033 has the reasons.
package listen

import (
	"context"
	"sync/atomic"
	"time"
)

// Notification is what a listener is told: a notification of the server, or a gap.
type Notification struct {
	Channel, Payload string
	// Gap: notifications may be missing that were committed between Since and Until. Since is zero
	// for the first one of a listener.
	Gap          bool
	Since, Until time.Time
}

// Conn is a connection that listens. One goroutine at a time uses it.
type Conn interface {
	// Listen and Unlisten change what the server sends to this connection: in one round trip, for all
	// of the channels or none.
	Listen(ctx context.Context, channels []string) error
	Unlisten(ctx context.Context, channels []string) error
	// Notify sends a notification.
	Notify(ctx context.Context, channel, payload string) error
	// Wait returns the next notification. If ctx ends, the connection stays as it is. Notifications
	// that have arrived already are returned also if ctx has ended, or the connection is lost.
	Wait(ctx context.Context) (channel, payload string, err error)
	// Relayed reports whether something between us and the server chooses the session that executes
	// a statement.
	Relayed(ctx context.Context) (bool, error)
	Ping(ctx context.Context) error
	// Close returns when the server has ended the session, or when nobody waits for that any more.
	Close()
}

// Config is what a Hub needs.
type Config struct {
	// Dial opens a connection. It ends in time by itself, and it does not panic.
	Dial func(ctx context.Context) (Conn, error)
	// Outage reports whether a later try may succeed, because err comes from the network or from a
	// server that starts or stops. Denied reports whether the server has refused the login.
	Outage, Denied func(err error) bool
	// Ping is the time between two pings. Timeout limits a ping, and every other statement.
	Ping, Timeout time.Duration

	// These are told what happens, under no lock. Dialled: a dial has succeeded, with its probe, or will
	// be tried again. Lost: a connection was lost. Overflowed: the queue of a listener was full.
	Dialled    func(err error)
	Lost       func(err error)
	Overflowed func(channel string)
}

// Counters count since the Hub was made.
type Counters struct {
	Received atomic.Uint64 // notifications from the server
	Dropped  atomic.Uint64 // notifications that a full queue had no room for
	Gaps     atomic.Uint64 // gaps of listeners, without the first one of each
	Losses   atomic.Uint64 // connections that were lost
}

// Listen calls call with each notification of the channel, one after the other, on the caller's
// goroutine. The first call is a gap. Listen returns nil when ctx ends, or an error: that of Close,
// that of a dial before the first success of its connection, unless it is an outage, or that of a
// server that does not know such a channel. If call returns an error, the next call is a gap.
func (h *Hub) Listen(ctx context.Context, channel string, call func(Notification) error) error {
	q := newQueue(channel)
	if err := h.join(q); err != nil {
		return err
	}
	defer h.leave(q)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.ended:
			return q.err
		case <-q.ready:
		}
		n, since, ok := q.take()
		if !ok || ctx.Err() != nil {
			continue
		}
		if call(n) != nil {
			h.lose(q, since, time.Now())
			q.pause(ctx, failPause)
		}
	}
}

// failPause is the pause after a call that has failed: a function that always fails is not called all
// the time.
const failPause = time.Second

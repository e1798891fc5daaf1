package listen

import (
	"context"
	"sync"
	"time"
)

// What a listener has not taken yet is bounded: its connection never stops to read, because a server
// whose queue of notifications fills up fails every transaction that notifies.
const (
	maxQueued = 1000
	maxBytes  = 4 << 20
)

// queue is what one listener has not taken yet: perhaps a gap, and the notifications behind it. A gap
// comes before all notifications, also before those that are older: who is told of it reads its state
// anew, and the older ones are in that state.
type queue struct {
	channel string
	ready   chan struct{} // has a value when there may be something to take
	ended   chan struct{} // closed when the listener has to return err
	err     error

	mu           sync.Mutex // protects following fields
	begun        bool       // the first gap was queued
	gap          bool
	since, until time.Time // the times of the gap
	items        []item
	bytes        int
}

// item is a notification. It was committed after since.
type item struct {
	payload string
	since   time.Time
}

func newQueue(channel string) *queue {
	return &queue{channel: channel, ready: make(chan struct{}, 1), ended: make(chan struct{})}
}

// end ends the listener. It is called once, after the queue has left its Hub.
func (q *queue) end(err error) {
	q.err = err
	close(q.ended)
}

// put queues a notification that was committed after since. If there is no room, the queue is emptied:
// what was in it is part of the gap. dropped counts the notifications that are lost.
func (q *queue) put(payload string, since time.Time) (dropped int, gap bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) < maxQueued && q.bytes+len(payload) <= maxBytes {
		q.items = append(q.items, item{payload, since})
		q.bytes += len(payload)
		q.wake()
		return 0, false
	}
	dropped = len(q.items) + 1
	if len(q.items) > 0 {
		since = q.items[0].since
	}
	q.items, q.bytes = nil, 0
	return dropped, q.loseLocked(since, time.Now())
}

// lose queues a gap, or makes the one that is queued longer. It reports whether there is one more gap,
// and it is not the first one.
func (q *queue) lose(since, until time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.loseLocked(since, until)
}

func (q *queue) loseLocked(since, until time.Time) (another bool) {
	another = !q.gap && q.begun
	if !q.begun {
		since = time.Time{} // whatever was committed before is unknown to the listener
	}
	if q.gap && q.since.Before(since) {
		since = q.since
	}
	q.begun, q.gap, q.since, q.until = true, true, since, until
	q.wake()
	return another
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns what is to be told next, and since when notifications are missing if it is not told.
func (q *queue) take() (n Notification, since time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.Channel = q.channel
	switch {
	case q.gap:
		q.gap, n.Gap, n.Since, n.Until = false, true, q.since, q.until
		since = n.Since
	case len(q.items) > 0:
		n.Payload, since = q.items[0].payload, q.items[0].since
		q.bytes -= len(n.Payload)
		q.items[0] = item{}
		q.items = q.items[1:]
	default:
		return n, since, false
	}
	q.wake()
	return n, since, true
}

// pause waits for d, or until the listener has to end.
func (q *queue) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-q.ended:
	}
}

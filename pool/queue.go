package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// waiterState says where a waiter's result will come from.
type waiterState uint8

const (
	stateQueued    waiterState = iota // in the queue: from the first resource that is free
	stateReserved                     // not in the queue: from one create
	stateFollowing                    // in the list following: another acquirer does its work; see follow.go
	stateDelivered                    // the result is there
	stateGone                         // the acquirer has left
)

// A waiter is an acquirer that sleeps. All fields but ch, start and until belong to
// the pool's lock until the result is delivered, and to the acquirer from
// then on. (wake reads yields before it sends.)
//
// A waiter that got a resource lives on: the resource keeps the waiter, and its release, which
// takes the lock anyway, puts the waiter back on the free list. By then the acquirer has read the
// result and emptied ch: otherwise it would not have the lease.
type waiter[T any] struct {
	// ch wakes the acquirer. Exactly one value is sent for each delivery,
	// maybe after the lock is released. ch is buffered, so a send never blocks.
	ch         chan struct{}
	next, prev *waiter[T]   // prev of the head is out of date
	r          *resource[T] // the result; nil: err is the result. While the waiter follows: its leader's
	seq        uint64       // order of arrival
	state      waiterState
	fresh      bool // r was created for this acquirer
	yields     bool // the woken acquirer runs after those that are ready already; see rotation
	creates    bool // a create that this acquirer has begun is running
	works      bool // see Follower.Works
	how        Priority
	judged     bool // admission lets it pass: it had its turn, or was counted in a dry run

	// start is when the wait began; 0: the acquirer has not looked at the clock yet. If others
	// wait, the acquirer looks after it has released the lock.
	start atomic.Int64
	// until is the deadline of ctx; 0: not known.
	until atomic.Int64
	// waited is set by the acquirer when it wakes up. If the acquirer is served as a follower, it is the
	// time until it was taken along.
	waited int64
	// ahead is how long the acquirer is predicted to need until its first hold ends; 0: not known, or the
	// acquirer is not refused. It is written when the acquirer enters the queue, by itself.
	ahead    int64
	pipeline uint64          // the number of the TakeAlong that took it last
	ctx      context.Context // the acquirer's context, whose values a create gets
	who      any             // the argument of AcquireAs
	err      error
}

// waitQueue holds waiters. It alone decides the order in which they are served: the order of arrival.
type waitQueue[T any] struct {
	head, tail *waiter[T] // in the order of arrival; tail means nothing while head is nil
	n          int
}

func (q *waitQueue[T]) empty() bool { return q.head == nil }

// next is the waiter whose turn it is, nil if the queue is empty. While the breaker is Recovering, this
// waiter probes, and next returns it until it is served or leaves: mayGrantLocked serves no other.
func (q *waitQueue[T]) next() *waiter[T] { return q.head }

// oldest is the waiter that has arrived first, nil if the queue is empty.
func (q *waitQueue[T]) oldest() *waiter[T] { return q.head }

// after is the waiter behind w, which is in the queue; nil: w is the last.
func (q *waitQueue[T]) after(w *waiter[T]) *waiter[T] { return w.next }

// push adds w, which has just arrived.
func (q *waitQueue[T]) push(w *waiter[T]) {
	if q.head == nil {
		q.head = w
	} else {
		w.prev = q.tail
		q.tail.next = w
	}
	q.tail = w
	q.n++
}

// readmit puts w back in its place: w had its turn, but BeforeAcquire refused the resource, or w
// followed. All waiters in the queue arrived after w, except others that were readmitted.
func (q *waitQueue[T]) readmit(w *waiter[T]) {
	after := q.head
	for after != nil && after.seq < w.seq {
		after = after.next
	}
	if after == nil {
		q.push(w)
		return
	}
	w.next = after
	if after == q.head {
		q.head = w
	} else {
		w.prev = after.prev
		w.prev.next = w
	}
	after.prev = w
	q.n++
}

// take takes out the waiter that next returns, which must exist. It leaves the new head's prev
// alone: that waiter's memory is likely in another processor's cache, and the
// lock is held.
func (q *waitQueue[T]) take() *waiter[T] {
	w := q.head
	q.head, w.next = w.next, nil
	q.n--
	return w
}

func (q *waitQueue[T]) remove(w *waiter[T]) {
	switch {
	case w == q.head:
		q.head = w.next
	case w == q.tail:
		q.tail = w.prev
		q.tail.next = nil
	default:
		w.prev.next = w.next
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
	q.n--
}

// errLate tells an acquirer that its deadline had passed when its turn came.
var errLate = errors.New("pool: late")

// lateGrace is how long after its deadline a context may take to end: a timer is late where
// processors are busy.
const lateGrace = 10 * time.Millisecond

// late is called when the turn came after the deadline of ctx. A nil error: ctx does not end with
// its deadline, and the acquirer goes on.
func (p *Pool[T]) late(ctx context.Context, t *ticket) error {
	timer := time.NewTimer(lateGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return p.refuseDone(ctx, t.start, t.refusal)
	case <-timer.C:
		t.timeless = true
		return nil
	}
}

// firstLocked is the next in the queue whose deadline has not passed; nil: there is none.
// The waiters before it leave the queue: they would only pass the resource on.
func (p *Pool[T]) firstLocked() *waiter[T] {
	for w := p.queue.next(); w != nil; w = p.queue.next() {
		if until := w.until.Load(); until == 0 || p.isBeforeLocked(until) {
			return w
		}
		p.failLocked(p.queue.take(), errLate)
	}
	return nil
}

// readmitLocked puts w back in its place in the queue.
func (p *Pool[T]) readmitLocked(w *waiter[T]) {
	w.state, w.judged = stateQueued, true // it had its turn
	p.queue.readmit(w)
	if behind := p.queue.after(w); behind != nil && behind.seq == p.probe {
		p.probe = w.seq // otherwise each would wait for the other: w for the probe, the probe for its turn
	}
	p.armExpiryAgainLocked(w)
	p.armStarvingAgainLocked()
	p.used = true
}

// removeLocked takes w, which has no result, from where it waits.
func (p *Pool[T]) removeLocked(w *waiter[T]) {
	switch w.state {
	case stateReserved:
		p.alone.remove(w)
	case stateFollowing:
		p.unfollowLocked(w)
	default:
		p.queue.remove(w)
	}
}

// newWaiterLocked takes a waiter from the free list, for attempt t.
func (p *Pool[T]) newWaiterLocked(ctx context.Context, t *ticket) *waiter[T] {
	w := p.free
	if w == nil {
		w = &waiter[T]{ch: make(chan struct{}, 1)}
	} else {
		p.free, w.next = w.next, nil
	}
	w.ctx, w.seq, w.who, w.creates, w.yields, w.how, w.judged, w.ahead = ctx, t.seq, t.who, false, false, t.how, t.how >= PriorityHigh, 0
	if t.start != 0 {
		w.start.Store(t.start)
	}
	return w
}

// recycleLocked puts w on the free list. The acquirer must not use w any more, and w.ch must be empty.
func (p *Pool[T]) recycleLocked(w *waiter[T]) {
	p.waits.record(w.waited)
	w.ctx, w.who, w.r = nil, nil, nil
	w.start.Store(0)
	if w.until.Load() != 0 {
		w.until.Store(0)
	}
	w.next = p.free
	p.free = w
}

// grantLocked gives r to w, which has left the queue. The caller calls w.wake, under the
// lock or after it.
func (p *Pool[T]) grantLocked(w *waiter[T], r *resource[T], fresh bool) {
	w.state, w.r, w.fresh = stateDelivered, r, fresh
	r.w = w
	p.acquires++
	p.peak = max(p.peak, p.lentLocked())
	if p.target != 0 {
		r.lentAt = p.clock.Coarse()
	}
	if p.handed += min(p.total, manyHolders); p.handed >= rotation {
		p.handed, w.yields = 0, true
	}
	if p.mode&modeRecovering != 0 && w.seq == p.probe {
		r.probe = w.seq
	}
}

// failLocked gives err to w, which has left the queue, and wakes it.
func (p *Pool[T]) failLocked(w *waiter[T], err error) {
	w.state, w.err = stateDelivered, err
	if w.seq == p.probe {
		p.probe = 0
	}
	w.wake()
}

// failAllLocked fails every waiter, but no follower.
func (p *Pool[T]) failAllLocked(why func(*waiter[T]) error) {
	for _, q := range []*waitQueue[T]{&p.queue, &p.alone} {
		for !q.empty() {
			w := q.take()
			p.failLocked(w, why(w))
		}
	}
}

// With n resources, one hand-over in rotation/n yields the processor to other goroutines (rounded up:
// one in 4 with 10 resources). With more than manyHolders resources it is one in rotation/manyHolders.
// A holder waits until all other holders have had their turn, so more holders need shorter turns: with
// one yield in 8 hand-overs, 64 goroutines over 32 connections waited 1.5 times as long as with
// database/sql (p99). But a yield costs a tenth of a hand-over: with one yield in 3, over 4
// connections, the throughput was a twentieth less.
const (
	rotation    = 32
	manyHolders = 16
)

// wake wakes the acquirer of w: the result is there.
//
// A woken goroutine is the next that Go runs, in the rest of the waker's time slice
// (runtime/proc.go, ready). It releases and wakes another goroutine. Such a chain holds a processor
// for up to 10 ms, until the scheduler preempts it, while other holders are ready to run behind it.
// The goroutine that is started here takes the place of the woken goroutine, which goes to the end
// of the processor's queue.
func (w *waiter[T]) wake() {
	yields := w.yields // read before the send: after it w belongs to its acquirer
	w.ch <- struct{}{}
	if yields {
		go endChain()
	}
}

func endChain() {}

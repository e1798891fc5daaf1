package pool

import (
	"math/bits"
	"time"
)

// counters are what Stats counts under the lock.
type counters struct {
	revoked                                   uint64 // the part of Pool.acquires that gave no lease
	creates, createErrors                     uint64
	cancelled, timeouts, refused, unavailable uint64
	orphaned, transitions                     uint64
	pipelines, pipelined                      uint64
	shed, shedLow, wouldRefuse                uint64
	destroyed                                 [reasons]uint64
}

// waitBuckets is the number of buckets of the wait-time histogram.
const waitBuckets = 27

// WaitBounds gives the upper bounds of the buckets of Stats.WaitHistogram, in
// rising order: 1 µs, 2 µs, 4 µs, … 33.6 s. The histogram has one bucket more, for longer waits.
func WaitBounds() []time.Duration {
	bounds := make([]time.Duration, waitBuckets-1)
	for i := range bounds {
		bounds[i] = time.Microsecond << i
	}
	return bounds
}

// waitStats adds up the waits. The sum of the buckets is the number of waits. An acquirer knows how
// long it waited only when it is awake again, without the lock. So its wait is recorded the next time
// that the lock is held for the acquirer anyway: after a success, at the end of the lease.
type waitStats struct {
	total, longest int64
	buckets        [waitBuckets]uint64
}

func (s *waitStats) record(ns int64) {
	s.total += ns
	s.longest = max(s.longest, ns)
	s.buckets[min(bits.Len64(uint64(ns)/1000), waitBuckets-1)]++
}

// Stats is what Pool.Stats returns. Counters run from New on.
//
// Count == Idle + Active, and Active == Lent + Creating + Checking +
// Destroying. The numbers down to Moves belong to one moment.
type Stats struct {
	Max     int // the present bound of Count; see Resize
	Allowed int // how many of Max the server has allowed; see Config.Full
	Count   int // resources that exist
	Idle    int
	// Active resources are taken, for one of these reasons:
	Active     int
	Lent       int // with a borrower, or in BeforeAcquire or BeforeRelease
	Creating   int
	Checking   int
	Destroying int

	Waiting   int // acquirers in the queue
	Following int // acquirers that others have taken along; see Lease.TakeAlong
	// LongestWait is how long the acquirer that came first has been in the queue, and CreatingFor how long
	// the first create that runs has been running; 0: there is none.
	LongestWait, CreatingFor time.Duration
	// Peak is the highest number of Lent since the last call of TakePeak.
	Peak  int
	State State // of the circuit breaker

	// Overloaded: the delay of the queue has been above Config.QueueTarget for QueueInterval, and new
	// acquirers are refused, or would be. PredictedWait is how long an acquirer that comes now waits, as far
	// as the last hand-overs tell. Both are zero while QueueTarget is 0.
	Overloaded    bool
	PredictedWait time.Duration

	// Moves counts the resources lent and those that came back, also if
	// BeforeAcquire refused the resource or the acquirer had left. Unlike Acquires,
	// Moves never falls. If two Stats have the same Moves, and in the second Waiting is not 0, and Idle,
	// Creating, Checking and Destroying are 0, then all waiters depend on the Lent resources, and
	// no Lent resource has moved in between.
	Moves uint64

	Acquires    uint64 // leases given
	Cancelled   uint64 // acquires that ended because their context was done
	Timeouts    uint64 // acquires that ended with ErrTimeout
	Refused     uint64 // acquires that ended with ErrTooManyWaiters
	Shed        uint64 // acquires that ended with ErrOverloaded
	ShedLow     uint64 // of Shed: those of PriorityLow
	WouldRefuse uint64 // acquires that Config.QueueDry has let pass: without it they would be in Shed
	Unavailable uint64 // acquires that ended with ErrUnavailable
	Pipelined   uint64 // acquires that ended with ErrServed
	Pipelines   uint64 // calls of TakeAlong that took somebody

	Creates      uint64 // creates that succeeded
	CreateErrors uint64
	Destroyed    Destroyed
	// Orphaned counts the resources whose Destroy did not return within
	// DestroyTimeout. Of the other numbers only Destroyed counts them.
	Orphaned    uint64
	Transitions uint64 // changes of State

	// Waits counts the acquires that had to wait, for a release or a create,
	// however they ended. An acquire that got a lease is counted when the lease is given back. The wait of
	// an acquire that ended with ErrServed ends when it is taken along.
	// WaitTotal is the sum of these waits, and WaitMax the longest. WaitHistogram has their number
	// by duration: bucket i counts the waits below WaitBounds()[i] and not below the bound before,
	// and the last bucket counts the rest.
	Waits         uint64
	WaitTotal     time.Duration
	WaitMax       time.Duration
	WaitHistogram [waitBuckets]uint64
}

// Destroyed counts the resources that were destroyed or are being destroyed, by reason.
type Destroyed struct {
	Lifetime      uint64 // older than MaxLifetime
	IdleTime      uint64 // idle longer than MaxIdleTime
	CheckFailed   uint64
	BeforeAcquire uint64 // the hook failed
	BeforeRelease uint64 // the hook failed
	Discarded     uint64 // Lease.Discard
	Flushed       uint64 // Flush
	Resized       uint64 // Resize
	Closed        uint64 // Close
}

// Sum adds all up.
func (d Destroyed) Sum() uint64 {
	return d.Lifetime + d.IdleTime + d.CheckFailed + d.BeforeAcquire + d.BeforeRelease +
		d.Discarded + d.Flushed + d.Resized + d.Closed
}

// movesOf returns Stats.Moves, the resources lent plus those that came back: each one that was lent is still lent or
// has come back.
func movesOf(acquires uint64, lent int) uint64 { return acquires + (acquires - uint64(lent)) }

// TakePeak returns Stats.Peak, which begins anew.
func (p *Pool[T]) TakePeak() (peak int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lent := p.lentLocked()
	peak, p.peak = max(p.peak, lent), lent
	return peak
}

func (p *Pool[T]) lentLocked() int {
	return p.total - p.idle.n - p.creating - p.checking - p.destroying
}

// agoSeen is sinceStart for Stats, which may be called outside while a bubble of testing/synctest uses the pool.
func (p *Pool[T]) agoSeen(start int64) time.Duration {
	return time.Duration(max(0, p.clock.Glance()-start))
}

// Stats reports the present state of the pool and its counters.
func (p *Pool[T]) Stats() Stats {
	p.mu.Lock()
	s := Stats{
		Max:          p.max,
		Allowed:      p.serverAllowsLocked(),
		Count:        p.total,
		Idle:         p.idle.n,
		Active:       p.total - p.idle.n,
		Creating:     p.creating,
		Checking:     p.checking,
		Destroying:   p.destroying,
		Waiting:      p.queue.n,
		Following:    p.following.n,
		State:        p.stateLocked(),
		Acquires:     p.acquires - p.count.revoked,
		Cancelled:    p.count.cancelled,
		Timeouts:     p.count.timeouts,
		Refused:      p.count.refused,
		Shed:         p.count.shed,
		ShedLow:      p.count.shedLow,
		WouldRefuse:  p.count.wouldRefuse,
		Overloaded:   p.admission.overloaded,
		Unavailable:  p.count.unavailable,
		Pipelined:    p.count.pipelined,
		Pipelines:    p.count.pipelines,
		Creates:      p.count.creates,
		CreateErrors: p.count.createErrors,
		Orphaned:     p.count.orphaned,
		Transitions:  p.count.transitions,
	}
	if p.target != 0 && p.idle.n == 0 {
		s.PredictedWait = time.Duration(p.predictedLocked())
	}
	s.Lent = p.lentLocked()
	s.Peak = max(p.peak, s.Lent)
	if w := p.queue.oldest(); w != nil {
		if start := w.start.Load(); start != 0 { // else it is about to look at the clock
			s.LongestWait = p.agoSeen(start)
		}
	}
	if len(p.creations) > 0 {
		s.CreatingFor = p.agoSeen(p.creations[0].start)
	}
	s.Moves = movesOf(p.acquires, s.Lent)
	d, waits := p.count.destroyed, p.waits
	p.mu.Unlock()
	s.Destroyed = Destroyed{
		Lifetime:      d[ReasonLifetime],
		IdleTime:      d[ReasonIdleTime],
		CheckFailed:   d[ReasonCheckFailed],
		BeforeAcquire: d[ReasonBeforeAcquire],
		BeforeRelease: d[ReasonBeforeRelease],
		Discarded:     d[ReasonDiscarded],
		Flushed:       d[ReasonFlushed],
		Resized:       d[ReasonResized],
		Closed:        d[ReasonClosed],
	}
	s.WaitTotal = time.Duration(waits.total)
	s.WaitMax = time.Duration(waits.longest)
	s.WaitHistogram = waits.buckets
	for _, n := range waits.buckets {
		s.Waits += n
	}
	return s
}

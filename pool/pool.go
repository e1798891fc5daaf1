package pool

import (
	"context"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// mode is the set of states in which a pool does not take its fast paths.
type mode uint8

const (
	modeClosed     mode = 1 << iota
	modeInactive        // the breaker is open: nobody waits, nothing is created
	modeRecovering      // the breaker lets one probe through
	modeOver            // after Resize more resources exist than Max allows
)

// resource is the pool's record of one real resource. It is never reused for a second real resource,
// so its value does not change.
type resource[T any] struct {
	value T
	pool  *Pool[T]

	// The pool's lock protects the following fields. The holder of the resource may
	// read stamp without it: only the holder changes it.
	stamp      uint64 // the number of this lending; see Lease
	generation uint64 // older than the pool's generation: the resource ends; see Flush and Close
	probe      uint64 // not 0: lent to the attempt with this number, as the breaker's probe
	expires    int64  // pool time
	idleSince  int64  // pool time, coarse
	idleOrder  uint64 // place in the idle list
	lentAt     int64  // pool time, coarse; written while admission is on
	w          *waiter[T]
	leads      uint64          // followers that have not ended; see follow.go
	served     int64           // followers of this lending that were served while admission was on
	preserved  bool            // see Config.Preserve; it does not change
	gone       bool            // destroyed or orphaned: Pool.total does not count it
	closer     *sync.WaitGroup // of the Close that waits until the resource is destroyed
}

// Pool lends resources of type T. All its methods are safe for concurrent
// use. Make one with New.
type Pool[T any] struct {
	cfg Config[T] // completed
	// stop ends when the pool is closed: it ends the contexts of Create and Check.
	stop  context.Context
	halt  context.CancelFunc
	clock bubble.CoarseClock // pool time

	// The fields below are written all the time. They must not share a cache line with the fields
	// above, which are only read.
	_ [64]byte

	mu sync.Mutex // protects following fields
	// The fields that nearly every cycle touches come first, to share few cache lines.
	mode       mode
	used       bool // the pool keeps Min
	generation uint64
	target     int64 // of the delay in the queue; 0: admission is off
	queue      waitQueue[T]
	free       *waiter[T]
	acquires   uint64 // resources lent, also those taken back before the acquirer had them
	peak       int    // see Stats.Peak
	handed     int    // counts up to rotation; see rotation
	seq        uint64
	idle       idleList[T]
	minIdle    int

	total      int // resources that exist
	creating   int // of total: being created
	reserved   int // of creating: for an acquirer that is not in the queue
	refilling  int // of creating: for Min or MinIdle, begun when no waiter lacked a create
	checking   int // being checked
	destroying int // being destroyed
	max, min   int

	alone     waitQueue[T] // waiters that are not in queue: each waits for a create of its own
	following waitQueue[T] // waiters that are not in queue, in the order in which they were taken along

	creations     []*creation[T] // the running creates, in the order of their start
	growth        growth
	outage        outage
	full          full
	lastCreateErr error         // of the most recent create; nil if it succeeded
	createEnded   chan struct{} // closed when a create ends; nil: nobody waits for that
	drained       chan struct{} // closed when the pool is closed and empty
	isDrained     bool

	probe         uint64 // not 0: the attempt that probes for the breaker
	inactiveSince int64

	sweepTimer   *time.Timer
	sweepArmed   bool
	nextCheck    int64
	checkRunning bool
	checkedAt    uint64 // acquires at the last round of checks
	expireTimer  *time.Timer
	expireAt     int64 // 0: expireTimer is not set
	starvation   starvation
	admission    admission
	world        *bubble.World // in which waiters and timers were made

	count counters
	waits waitStats
}

// New makes a pool. It creates no resource and starts no goroutine before the first use.
// The error lists everything that is wrong with the configuration.
func New[T any](config Config[T]) (*Pool[T], error) {
	cfg, err := config.completed()
	if err != nil {
		return nil, err
	}
	p := &Pool[T]{
		cfg:     cfg,
		max:     cfg.Max,
		min:     cfg.Min,
		minIdle: cfg.MinIdle,
		target:  int64(cfg.QueueTarget),
		drained: make(chan struct{}),
	}
	p.clock.Start()
	p.world = p.clock.World()
	p.stop, p.halt = context.WithCancel(context.Background())
	p.stop.Done() // makes the channel of stop now: a later call could make it in a bubble
	return p, nil
}

// putLocked gives r, which has no holder, to the first waiter or to the idle list, or ends r. If it
// returns a waiter, the caller must wake that waiter. Every resource that becomes free passes here, or
// through putCheckedLocked after a check.
func (p *Pool[T]) putLocked(r *resource[T]) *waiter[T] {
	now := p.clock.Coarse()
	if r.generation != p.generation || now >= r.expires || p.mode != 0 {
		if why := p.unfitLocked(r, now); why != fit {
			p.retireLocked(r, why)
			p.balanceLocked()
			return nil
		}
	}
	if !p.queue.empty() {
		if w := p.chosenLocked(); w != nil && p.mayGrantLocked(w) {
			p.queue.take()
			p.grantLocked(w, r, false)
			if p.creating > 0 {
				p.growth.returned = now
			}
			return w
		}
	}
	r.idleSince = now
	p.idle.push(r)
	return nil
}

// unfitLocked says why r may not be lent again.
func (p *Pool[T]) unfitLocked(r *resource[T], now int64) Reason {
	switch {
	case p.mode&modeClosed != 0:
		return ReasonClosed
	case r.generation != p.generation && !r.preserved:
		return ReasonFlushed
	case now >= r.expires:
		return ReasonLifetime
	case p.mode&modeOver != 0 && p.total-p.destroying > p.max:
		return ReasonResized
	}
	return fit
}

// balanceLocked brings waiters, idle resources and creates into agreement. It must follow every
// change that is not a plain hand-over.
func (p *Pool[T]) balanceLocked() {
	if p.mode&modeOver != 0 && p.total <= p.max {
		p.mode &^= modeOver
	}
	for p.idle.n > 0 {
		w := p.firstLocked()
		if w == nil || !p.mayGrantLocked(w) {
			break
		}
		p.queue.take()
		p.grantLocked(w, p.takeIdleLocked(), false)
		w.wake()
	}
	for n := p.wantedLocked(); n > 0; n = p.wantedLocked() {
		for range n {
			p.startCreateLocked(nil)
		}
	}
	if p.mode&modeClosed != 0 && p.total == 0 && !p.isDrained {
		p.isDrained = true
		close(p.drained)
	}
}

func (p *Pool[T]) takeIdleLocked() *resource[T] {
	if p.cfg.IdleOrder == FIFO {
		return p.idle.popOldest()
	}
	return p.idle.popNewest()
}

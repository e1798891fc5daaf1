package pool

import (
	"context"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// mode is what keeps a pool off its fast paths.
type mode uint8

const (
	modeClosed     mode = 1 << iota
	modeInactive        // the breaker is open: nobody waits, nothing is created
	modeRecovering      // the breaker lets one probe through
	modeOver            // Resize: more exist than may
)

// resource is one real resource, for as long as it exists. It is never used
// for a second one, so its value does not change.
type resource[T any] struct {
	value T
	pool  *Pool[T]

	// The pool's lock protects the following fields. The holder of the resource may
	// read stamp without it: only the holder changes it.
	stamp      uint64 // which lending this is; see Lease
	generation uint64 // Flush and Close leave older ones behind
	probe      uint64 // not 0: lent as this probe of the breaker
	expires    int64  // pool time
	idleSince  int64  // pool time, coarse
	idleOrder  uint64 // place in the idle list
	w          *waiter[T]
	preserved  bool            // see Config.Preserve; it does not change
	gone       bool            // does not count any more
	closer     *sync.WaitGroup // of the Close that waits for the destroying
}

// Pool lends resources of type T. All its methods are safe for concurrent
// use. Make one with New.
type Pool[T any] struct {
	cfg Config[T] // completed
	// stop ends when the pool is closed: nobody needs what hooks do then.
	stop  context.Context
	halt  context.CancelFunc
	clock bubble.Clock // pool time

	// What follows is written all the time. It must not share a line with
	// what is only read, above.
	_ [64]byte

	mu sync.Mutex // protects following fields
	// What nearly every cycle touches comes first, to share few lines.
	mode       mode
	asleep     bool  // the coarse clock does not tick
	used       bool  // Min is to be kept
	now        int64 // pool time as of the last tick
	generation uint64
	queue      waitQueue[T]
	free       *waiter[T]
	acquires   uint64 // resources lent, those taken back before the acquirer had them included
	seq        uint64
	idle       idleList[T]
	minIdle    int

	total      int // all that exist
	creating   int // of these, being created,
	reserved   int // of these, for somebody not in the queue
	refilling  int // and for Min or MinIdle, when nobody in the queue was without one
	checking   int // being checked
	destroying int // being destroyed
	max, min   int

	alone waitQueue[T] // not queueing: each waits for a create of its own

	creations     []*creation[T] // those that are running, in the order of their start
	outage        outage
	full          full
	lastCreateErr error         // of the most recent create; nil if it succeeded
	createEnded   chan struct{} // closed and replaced when a create ends; nil if nobody asks
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
	expireArmed  bool
	starvation   starvation
	tickTimer    *time.Timer
	tickEvery    time.Duration
	tickSeen     uint64 // acquires at the last tick
	read         int64  // pool time as of the last look of nowLocked

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
		asleep:  true,
		max:     cfg.Max,
		min:     cfg.Min,
		minIdle: cfg.MinIdle,
		drained: make(chan struct{}),
	}
	p.clock.Start()
	p.stop, p.halt = context.WithCancel(context.Background())
	p.stop.Done() // makes the channel: later it could be that of a bubble
	p.tickEvery = cfg.tick()
	return p, nil
}

// putLocked finds the next place for r, which has no holder: the first waiter, which is
// returned and must be woken, the idle list, or its end. Every resource that becomes free
// passes here.
func (p *Pool[T]) putLocked(r *resource[T]) *waiter[T] {
	if p.asleep {
		p.wakeClockLocked()
	}
	if r.generation != p.generation || p.now >= r.expires || p.mode != 0 {
		if why := p.unfitLocked(r); why != fit {
			p.retireLocked(r, why)
			p.balanceLocked()
			return nil
		}
	}
	if w := p.firstLocked(); w != nil && p.mayGrantLocked(w) {
		p.queue.take()
		p.grantLocked(w, r, false)
		return w
	}
	r.idleSince = p.now
	p.idle.push(r)
	return nil
}

// unfitLocked says why r may not be lent again.
func (p *Pool[T]) unfitLocked(r *resource[T]) Reason {
	switch {
	case p.mode&modeClosed != 0:
		return closed
	case r.generation != p.generation && !r.preserved:
		return flushed
	case p.now >= r.expires:
		return lifetime
	case p.mode&modeOver != 0 && p.total-p.destroying > p.max:
		return resized
	}
	return fit
}

// balanceLocked brings waiters, idle resources and creates into agreement. It
// follows every change that is not a plain hand-over.
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

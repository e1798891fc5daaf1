package report

import (
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/observe/histogram"
	"github.com/pooldriver/pooldriver/pool"
)

// Reason says why a real connection is closed. The first ones are the pool's.
type Reason uint8

// The reasons that the pool does not know. It knows each of them as ReasonDiscarded.
const (
	Lost        = Reason(pool.ReasonDiscarded)     // it broke while it was used, or its state is in doubt
	CheckFailed = Reason(pool.ReasonCheckFailed)   // a health check has failed
	ResetFailed = Reason(pool.ReasonBeforeRelease) // a rollback or a cleaning has failed; we set no BeforeRelease hook
	Uncleanable = Reason(pool.ReasonClosed + 1)    // its session cannot be cleaned in place
	WrongRole   = Reason(pool.ReasonClosed + 2)    // its server is not what the DSN asks for any more
	Reasons     = int(WrongRole) + 1               // how many there are
)

// Failure says why a statement got no connection.
type Failure uint8

// The failures.
const (
	Timeout     Failure = iota // pool_acquire_timeout
	Cancelled                  // the statement's context has ended, soon
	QueueFull                  // pool_max_waiters
	BreakerOpen                // pool_breaker_failures
	DialFailed                 // the dial, or all of the last dials
	Deadlock                   // a wait cycle
	Closed                     // the Connector was closed
	Overloaded                 // pool_queue_target
	GaveUp                     // the statement's context has ended: by its deadline, or after a long wait
	Failures    = int(GaveUp) + 1
)

// Counters are what a connector counts beyond its pool.
type Counters struct {
	Cleanings, Rollbacks, Discards, Retries atomic.Uint64
	FoundDead, DialErrors, Orphans          atomic.Uint64
	WrongRoles, StateDropped, TxRetries     atomic.Uint64
	StmtHits, StmtMisses                    atomic.Uint64
	ReadAheads, Reclaims                    atomic.Uint64
	Pipelined, PipelineRepeats              atomic.Uint64
	Buffered                                atomic.Int64        // bytes of rows in memory
	Wait, Connect                           histogram.Histogram // Wait: only of those that waited, and of the pipelined
	waited                                  atomic.Uint64       // the waits in Wait that ended with a connection
	atOnce                                  highest             // the most connections that were lent without a wait
	Closed                                  [Reasons]atomic.Uint64
	AcquireFailures                         [Failures]atomic.Uint64
}

// Waited counts a statement that has got a connection after a wait.
func (c *Counters) Waited(d time.Duration) {
	c.Wait.Record(d, 1)
	c.waited.Add(1)
}

// AtOnce is how many statements got a connection and did not wait. acquires is the pool's count of
// all statements that got one. The pool counts a statement that has waited earlier than this package
// does, so the difference may fall. The result of AtOnce never falls, because a counter that falls
// looks like a program that was started again.
func (c *Counters) AtOnce(acquires uint64) uint64 {
	return c.atOnce.raise(acquires - min(acquires, c.waited.Load()))
}

// highest is the largest number that it was raised to.
type highest struct{ n atomic.Uint64 }

// raise raises h to n, unless h is higher, and returns h.
func (h *highest) raise(n uint64) uint64 {
	for {
		before := h.n.Load()
		if n <= before {
			return before
		}
		if h.n.CompareAndSwap(before, n) {
			return n
		}
	}
}

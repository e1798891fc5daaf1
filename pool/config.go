package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// The defaults that take the place of a zero in Config.
const (
	DefaultMax            = 10
	DefaultAcquireTimeout = 30 * time.Second
	DefaultCreateTimeout  = 10 * time.Second
	DefaultReleaseTimeout = 5 * time.Second
	DefaultCheckTimeout   = 5 * time.Second
	DefaultDestroyTimeout = 5 * time.Second
	DefaultCheckInterval  = time.Minute
	DefaultMaxLifetime    = time.Hour
	DefaultMaxIdleTime    = 30 * time.Minute
	DefaultStarveAfter    = 20 * time.Millisecond
	DefaultQueueInterval  = 500 * time.Millisecond
)

// minConcurrentCreates is how many creates may run at once in a pool that has
// fewer resources than that; see Config.MaxConcurrentCreates.
const minConcurrentCreates = 4

// IdleOrder says which idle resource is lent next.
type IdleOrder uint8

const (
	// LIFO lends the resource that was released last. Its caches are warm, and
	// resources that the pool does not need reach MaxIdleTime.
	LIFO IdleOrder = iota
	// FIFO lends the resource that has been idle longest, so that all are used
	// evenly: for resources spread over several servers.
	FIFO
)

// Config describes a pool. Only Create must be set. For every other field the
// zero value has the meaning given here.
//
// No function of a Config is called while the pool's lock is held, and each may
// call the pool. A function that panics, or ends its goroutine with
// runtime.Goexit, has failed with a *PanicError: its resource is destroyed, and
// the resource's place in the pool is free again.
type Config[T any] struct {
	// Create makes a resource. It runs on a goroutine of the pool. Its context
	// has the values of the acquirer that caused it, and no values if the pool
	// fills up to Min. The context is not cancelled with that acquirer. It ends
	// after CreateTimeout, and when the pool is closed.
	Create func(ctx context.Context) (T, error)

	// Destroy ends a resource. It is called exactly once for each resource that
	// Create returned without an error, on a goroutine of its own. The resource
	// counts as active until Destroy returns or DestroyTimeout is over: the pool creates no other
	// in its place before that. Nil: there is nothing to do.
	Destroy func(v T)

	// Destroying is called with each resource that is about to be destroyed, and the reason. It
	// runs on the goroutine of Destroy, before Destroy, and should be quick.
	Destroying func(v T, why Reason)

	// Check says whether an idle resource is still good. Every CheckInterval the pool calls Check
	// for one idle resource after the other, also while nobody uses the pool. The resource counts
	// as active during Check. An error destroys it, and Min is filled again. Check's context ends
	// after CheckTimeout. The pool waits at most twice CheckTimeout for Check to return. Then it
	// calls Destroy, although Check still runs.
	Check func(ctx context.Context, v T) error

	// CheckAfterUse skips a round of Check if nothing was acquired since the last round. It is for
	// resources whose check has a cost, such as a server that sleeps while nobody uses it.
	CheckAfterUse bool

	// BeforeAcquire prepares a resource that is idle or was lent before for its
	// next borrower, on the borrower's goroutine and with the borrower's
	// context. TryAcquire has no context: BeforeAcquire gets a background context that
	// ends after CheckTimeout. BeforeAcquire is not called for a resource that
	// was created for this very borrower. An error destroys the resource. The
	// borrower keeps its place in the queue, and goes on with the next
	// resource. If the borrower's context is done by then, the resource is
	// destroyed too, since the hook may have stopped halfway, and the borrower
	// gets its context's error.
	BeforeAcquire func(ctx context.Context, v T) error

	// BeforeRelease cleans a resource that comes back, on the goroutine that
	// calls Release. An error destroys the resource, and counts as a failure
	// for Strategy. Its context ends after ReleaseTimeout and has no values.
	BeforeRelease func(ctx context.Context, v T) error

	// Starving is called when the first acquirer in the queue has waited
	// StarveAfter, and again every StarveAfter while the first has waited that
	// long. waiting is the number of acquirers in the queue. Starving is for an
	// owner that can make borrowers give resources back. It runs on a goroutine
	// of the pool. Two calls never run at once, and they begin at least
	// StarveAfter apart: a call that takes longer delays the next.
	// If BeforeAcquire has refused a borrower's resource, the borrower's wait
	// counts from its beginning, not from the return to the queue. A closed
	// pool begins no call, but Close does not wait for a call that has begun.
	Starving func(waiting int)

	// Denied reports whether an error of Create is a refusal, such as a wrong password: a second
	// create soon after does not help, and may lock an account. For Min and MinIdle such a create
	// is not repeated for 5 s; for acquirers the pauses are longer: see CreateError.Ago. Denied
	// should be quick.
	Denied func(err error) bool
	// Full reports whether an error of Create says that the server has no room for more
	// resources. While at least one resource is open, such a create makes no acquirer fail:
	// acquirers wait for a release, the pool tries one more create once a second, and
	// Stats.Allowed says how many resources there may be. AcquireNow fails with ErrNoneNow. Full
	// should be quick.
	Full func(err error) bool
	// FreshCredentials says that each Create asks for its credentials anew.
	// Then the refusal of one Create says nothing about the next, and waiting
	// callers do not share its error.
	FreshCredentials bool

	// Preserve reports whether a resource cannot be replaced, such as a connection whose
	// database in memory ends with it. Such a resource is not checked. Only Discard,
	// Resize, Close or a hook's error end it: not its age, its idle time or Flush.
	// Preserve is called once for each resource, when Create has returned, on the same
	// goroutine. If it panics, the answer is no.
	Preserve func(v T) bool

	// OnError is called for each failure of a hook above, with the hook's name
	// and the error: most of these errors reach no caller. It runs on the
	// hook's goroutine and should be quick.
	OnError func(hook string, err error)

	// Max bounds the resources that exist at any time, including those that are
	// being created or destroyed. 0: DefaultMax.
	Max int
	// Min is the number of resources that the pool creates in the background
	// from its first use on, and keeps. After a failed create the pool tries
	// again with one create at a time, after 0.1 s, then 0.2 s and so on up to
	// 5 s, until a create succeeds.
	Min int
	// MinIdle is how many idle resources are kept ready, as far as Max
	// allows.
	MinIdle int

	// MaxWaiters bounds the acquirers that wait for a release, because no
	// create is under way for them and Max allows none. One more acquirer fails
	// with ErrTooManyWaiters. Acquirers that follow (Lease.TakeAlong) do not count. 0: no bound.
	// PriorityAgain is not refused.
	MaxWaiters int
	// MaxConcurrentCreates bounds the creates that run at once. 0: as many as
	// there are resources already, and at least four. So a pool grows by
	// doubling, and a burst of acquirers does not open one resource for each acquirer if the first
	// resources come back quickly. If a create has succeeded, and no resource comes back for a quarter of the
	// time that the create took, as many run as acquirers wait. This bound does not hold for creates of AcquireNow, which serve
	// one acquirer alone. Negative: no bound but Max.
	MaxConcurrentCreates int

	// QueueTarget is the delay in the queue that the pool aims at under overload; 0: nobody is refused because
	// of overload. If the delay has been above QueueTarget for QueueInterval, without a moment below, the pool
	// is overloaded, until the delay has been at QueueTarget or below for QueueInterval. It is overloaded later, by up
	// to three QueueIntervals, if acquirers of PriorityLow are refused meanwhile: by the time that they would have taken; until then the limit is four
	// QueueTargets. While the pool is overloaded, an acquirer whose wait is, or is predicted to be, more than one and a half QueueTarget fails
	// with ErrOverloaded. So does, overloaded or not, an acquirer of PriorityLow whose wait is more than half of
	// QueueTarget, and an acquirer whose context ends before it would have had a resource for as long as
	// resources are held on average. Acquirers who stay are served in the order in which they came.
	//
	// Nobody is refused while a resource is idle or can be created, or while the circuit breaker is not Active;
	// nor is PriorityHigh or PriorityAgain, nor who was taken along (Lease.TakeAlong), nor whose resource BeforeAcquire refused.
	QueueTarget time.Duration
	// QueueInterval: see QueueTarget. 0: DefaultQueueInterval.
	QueueInterval time.Duration
	// QueueDry only counts, in Stats.WouldRefuse, whom QueueTarget would refuse. They stay in the queue, and
	// others wait behind them: so more are counted than would be refused.
	QueueDry bool

	// AcquireTimeout bounds the wait in Acquire, beside Acquire's context. 0:
	// DefaultAcquireTimeout; negative: no bound.
	AcquireTimeout time.Duration
	// CreateTimeout ends the context of Create. 0: DefaultCreateTimeout;
	// negative: no bound.
	CreateTimeout time.Duration
	// ReleaseTimeout ends the context of BeforeRelease. 0:
	// DefaultReleaseTimeout; negative: no bound, and no allocation for it.
	ReleaseTimeout time.Duration
	// CheckTimeout ends the context of Check. 0: DefaultCheckTimeout;
	// negative: no bound.
	CheckTimeout time.Duration
	// DestroyTimeout is how long a Destroy may occupy the place of its
	// resource. After that the place is free, and the resource counts as
	// orphaned. 0: DefaultDestroyTimeout; negative: no bound.
	DestroyTimeout time.Duration

	// CheckInterval is the time between two rounds of Check. 0:
	// DefaultCheckInterval; negative: no rounds.
	CheckInterval time.Duration
	// MaxLifetime is the age from which a resource is replaced, when it comes
	// back or while it is idle. 0: DefaultMaxLifetime; negative: no bound.
	MaxLifetime time.Duration
	// Jitter spreads the replacement of resources over time: the lifetime of
	// each resource is MaxLifetime plus a random part of Jitter. 0: a tenth of
	// MaxLifetime; negative: none.
	Jitter time.Duration
	// MaxIdleTime is how long a resource may be idle, unless Min or MinIdle
	// need it. 0: DefaultMaxIdleTime; negative: no bound.
	MaxIdleTime time.Duration

	// StarveAfter is how long the first in the queue waits before Starving is
	// called, and the least time between two calls. 0: DefaultStarveAfter;
	// negative: no calls.
	StarveAfter time.Duration

	// IdleOrder says which idle resource is lent next.
	IdleOrder IdleOrder

	// Strategy drives the circuit breaker. Nil: only Activate, Deactivate
	// and Recover do.
	Strategy Strategy
}

// completed checks c and sets the defaults. In the result a duration of zero
// means no bound.
func (c Config[T]) completed() (Config[T], error) {
	c.Max = cmp.Or(c.Max, DefaultMax)
	err := c.check()
	c.setDurations()
	return c, err
}

func (c *Config[T]) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pool: config: "+format, args...))
	}
	if c.Create == nil {
		bad("Create is missing")
	}
	if c.Max < 0 {
		bad("Max is %d, must not be negative", c.Max)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"Min", c.Min}, {"MinIdle", c.MinIdle}} {
		if n.value < 0 {
			bad("%s is %d, must not be negative", n.name, n.value)
		}
		if c.Max > 0 && n.value > c.Max {
			bad("%s is %d, more than Max, which is %d", n.name, n.value, c.Max)
		}
	}
	if c.MaxWaiters < 0 {
		bad("MaxWaiters is %d, must not be negative", c.MaxWaiters)
	}
	if c.QueueTarget < 0 || c.QueueInterval < 0 {
		bad("QueueTarget is %v and QueueInterval %v, must not be negative", c.QueueTarget, c.QueueInterval)
	}
	if c.IdleOrder > FIFO {
		bad("IdleOrder is %d, want LIFO or FIFO", c.IdleOrder)
	}
	return errors.Join(errs...)
}

// setDurations sets the defaults of durations.
func (c *Config[T]) setDurations() {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.AcquireTimeout, DefaultAcquireTimeout},
		{&c.CreateTimeout, DefaultCreateTimeout},
		{&c.ReleaseTimeout, DefaultReleaseTimeout},
		{&c.CheckTimeout, DefaultCheckTimeout},
		{&c.DestroyTimeout, DefaultDestroyTimeout},
		{&c.CheckInterval, DefaultCheckInterval},
		{&c.MaxLifetime, DefaultMaxLifetime},
		{&c.MaxIdleTime, DefaultMaxIdleTime},
		{&c.StarveAfter, DefaultStarveAfter},
		{&c.QueueInterval, DefaultQueueInterval},
	} {
		switch {
		case *d.value == 0:
			*d.value = d.zero
		case *d.value < 0:
			*d.value = 0
		}
	}
	if c.Starving == nil {
		c.StarveAfter = 0
	}
	switch {
	case c.Jitter < 0 || c.MaxLifetime == 0:
		c.Jitter = 0
	case c.Jitter == 0:
		c.Jitter = c.MaxLifetime / 10
	}
}

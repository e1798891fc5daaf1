// Package pool lends resources that are costly to make and good for one
// borrower at a time: connections, clients, workers. It knows nothing of
// databases and imports the standard library alone.
//
//	p, err := pool.New(pool.Config[*Client]{
//		Create:  dial,
//		Destroy: func(c *Client) { c.Close() },
//		Max:     10,
//	})
//	…
//	lease, err := p.Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Release()
//	use(lease.Value())
//
// # What holds, always
//
// A resource is idle or active, and Count == Idle + Active <= Max, also while
// a hook runs. One that is being destroyed counts as active until Destroy has
// returned, or Config.DestroyTimeout is over (Stats.Orphaned), so that a server
// never sees more than Max. (A Resize below the number of lent resources takes effect when they
// come back.)
//
// Acquirers are served in the order in which they came. A release hands the
// resource to the first of them directly, so nobody who comes later can
// snatch it, not even the releaser. An acquirer whose context ends just when
// it gets a resource passes the resource on in the same order. TryAcquire and
// AcquireNow take no resource that somebody waits for.
//
// Create runs in the background, and its result belongs to the pool. The new resource goes to the
// acquirer that is first in the queue when Create returns. An error of Create goes to the acquirer that
// caused the create, if that acquirer still waits. A create is started only if more acquirers wait than
// creates are running. If releases serve all acquirers first, the new resource becomes idle.
//
// A resource is destroyed exactly once: when it is too old, idle for too
// long, fails a hook, is discarded, or when the pool is flushed, shrunk or
// closed. A panic of a hook counts as an error of the hook.
//
// A [Lease] that is given back twice is recognised, even if the resource has
// another borrower by then.
//
// # Statistics
//
// They are always on. With them an acquire and release still allocates nothing; docs/performance.md
// has the cost. See [Stats].
//
// # Pipelines
//
// Whoever has got a resource may do the work of others with it: [Lease.TakeAlong] takes those who wait out of
// the queue, in their order. Their Acquire returns [ErrServed] when the work is done. One that is not served
// goes back to its own place in the queue.
//
// # Overload
//
// With [Config].QueueTarget a pool whose queue stays long refuses those who would be served too late
// ([ErrOverloaded]), and serves the others in time.
//
// # Circuit breaker
//
// A pool whose server is down can refuse at once instead of making everybody
// wait: see [State], [Strategy] and [ConsecutiveFailures].
//
// # Reading the source
//
// pool.go has the state and the two functions in which every change ends: putLocked for a resource
// that comes from anywhere, balanceLocked for all else. From there: acquire.go and queue.go,
// lease.go, follow.go, admission.go, create.go, destroy.go. One mutex guards it all; no I/O, no hook and no other
// foreign code runs under it, except the questions of TakeAlong.
package pool

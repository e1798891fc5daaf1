package pool

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// wantedLocked is how many creates are to be started for the queue and for
// Min and MinIdle.
func (p *Pool[T]) wantedLocked() int {
	if p.mode&(modeClosed|modeInactive) != 0 || !p.used {
		return 0
	}
	room := p.roomLocked()
	if room <= 0 {
		p.probeFullLaterLocked()
		return 0
	}
	if p.mode&modeRecovering != 0 {
		// Only one probe runs at a time, and a create is a probe.
		if !p.queue.empty() && p.creating == 0 && p.mayGrantLocked(p.queue.next()) {
			return 1
		}
		return 0
	}
	if p.outage.failures > 0 {
		return p.wantedInOutageLocked(room)
	}
	wanted := p.queue.n - (p.creating - p.reserved)
	minimum, idle := p.missingLocked()
	return min(max(wanted, minimum, max(0, wanted)+idle), room)
}

// missingLocked is how many more creates Min and MinIdle need. It counts the running creates: creates
// beyond the number of waiters count for MinIdle, and all creates count for Min.
func (p *Pool[T]) missingLocked() (minimum, idle int) {
	surplus := max(0, p.creating-p.reserved-p.queue.n)
	live := p.total - p.destroying
	return p.min - live, p.minIdle - p.idle.n - p.checking - surplus
}

// roomLocked is how many creates may be started now for the queue and for Min
// and MinIdle.
func (p *Pool[T]) roomLocked() int {
	limit, running := p.cfg.MaxConcurrentCreates, p.creating
	switch {
	case limit < 0:
		limit = p.max
	case limit == 0:
		limit = max(minConcurrentCreates, p.total-p.creating-p.destroying)
		running -= p.reserved
		if p.queue.n > limit && p.total < p.allowedLocked() && p.outgrowsLocked() {
			limit = p.max
		}
	}
	return min(p.allowedLocked()-p.total, limit-running)
}

// growth is what lets a pool start more creates than it has resources: while creates run, one has succeeded, so the server takes
// more, and no resource has come back to a waiter for a while, so holds are long. The pool's lock protects it.
type growth struct {
	proven   int64 // when the first create succeeded since creates run; 0: none has, or one has failed since
	patience int64 // how long resources have to stay away: a quarter of the time of that create
	returned int64 // when a resource came back to a waiter last
}

// outgrowsLocked reports whether as many creates may run as acquirers wait.
func (p *Pool[T]) outgrowsLocked() bool {
	g := &p.growth
	if p.creating == 0 || g.proven == 0 {
		return false
	}
	now, at := p.nowLocked(), later(max(g.proven, g.returned), time.Duration(g.patience))
	if now < at {
		p.balanceAtLocked(at, now)
	}
	return now >= at
}

// spareLocked reports whether a create may be started now for one acquirer
// alone. The bound by which a pool doubles does not hold for such creates: each new resource is
// used, whatever comes back meanwhile.
func (p *Pool[T]) spareLocked() bool {
	limit := p.cfg.MaxConcurrentCreates
	return p.total < p.allowedLocked() && (limit <= 0 || p.creating < limit)
}

// startCreateLocked starts one create: for w alone or, if w is nil, for the waiter that is
// first in the queue when the create ends.
func (p *Pool[T]) startCreateLocked(w *waiter[T]) {
	c := &creation[T]{start: p.nowLocked(), alone: w != nil, othersExist: p.total > 0}
	switch {
	case c.alone:
		p.reserved++
	case p.unservedLocked() > 0:
		w = p.queue.oldest()
		for w.creates { // ends: fewer creates than waiters run, so some waiter has no create
			w = p.queue.after(w)
		}
	default:
		c.refill = true
		p.refilling++
	}
	ctx := context.Background()
	if w != nil {
		w.creates = true
		c.w, c.seq, ctx = w, w.seq, w.ctx
	}
	if p.creating == 0 {
		p.growth.proven = 0
	}
	p.total++
	p.creating++
	p.creations = append(p.creations, c)
	if p.outage.failures > 0 {
		p.outage.nextCreate = max(p.outage.nextCreate, later(c.start, p.outage.pause))
	}
	go p.create(ctx, c, p.generation)
}

// reserveLocked starts a create for w alone.
func (p *Pool[T]) reserveLocked(w *waiter[T]) {
	w.state = stateReserved
	p.alone.push(w)
	p.startCreateLocked(w)
}

// creation is a create that is running.
type creation[T any] struct {
	start       int64
	w           *waiter[T] // the acquirer that has begun the create; nil: the pool has
	seq         uint64     // w.seq at that time: w may belong to another acquirer now
	alone       bool       // the create is for w alone
	othersExist bool       // other resources existed when the create began
	refill      bool       // the create is for Min or MinIdle
}

// waits reports whether the acquirer that has begun c still waits.
func (c *creation[T]) waits() bool {
	return c.w != nil && c.w.seq == c.seq && c.w.state <= stateReserved
}

// creating is the key under which a context of Create holds its resource.
type creating struct{}

// create runs Create and delivers its resource or its error.
func (p *Pool[T]) create(cause context.Context, c *creation[T], generation uint64) {
	ctx, cancel := p.bounded(context.WithoutCancel(cause), p.cfg.CreateTimeout)
	defer cancel()
	defer context.AfterFunc(p.stop, cancel)()
	r := &resource[T]{pool: p, generation: generation, expires: never}
	detached("Create",
		func() (err error) {
			r.value, err = p.cfg.Create(context.WithValue(ctx, creating{}, r))
			return err
		},
		func(err error) {
			if err != nil {
				p.createFailed(c, err)
			} else {
				defer p.created(c, r) // Preserve may end the goroutine
				r.preserved = p.preserves(r.value)
			}
		})
}

// created delivers r: to the acquirer that r is for, else to the first in the queue, else to the
// idle list.
//
// A resource whose create began before a Flush is still given to a waiter, and replaced
// when it comes back: repeated flushes must not keep acquirers waiting. Such a resource does not
// become idle.
func (p *Pool[T]) created(c *creation[T], r *resource[T]) {
	var v verdict
	// Deferred, because the Strategy is foreign code and may end the
	// goroutine.
	defer func() { p.deliver(c, r, v) }()
	v = p.judgeCreate(nil)
}

func (p *Pool[T]) deliver(c *creation[T], r *resource[T], v verdict) {
	if p.cfg.MaxLifetime > 0 && !r.preserved {
		r.expires = later(p.since(), p.cfg.MaxLifetime)
		if p.cfg.Jitter > 0 {
			r.expires = later(r.expires, rand.N(p.cfg.Jitter))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.createEndedLocked(c)
	p.count.creates++
	if g := &p.growth; g.proven == 0 {
		g.proven = p.nowLocked()
		g.patience = max(2*int64(bubble.Tick), (g.proven-c.start)/4)
	}
	p.outageEndsLocked()
	p.applyLocked(v)
	p.armSweepLocked()
	switch w := c.w; {
	case c.alone && c.waits():
		p.alone.remove(w)
		p.grantLocked(w, r, true)
		w.wake()
	default:
		first := p.chosenLocked()
		if first == nil || !p.mayGrantLocked(first) {
			first = p.putLocked(r)
		} else {
			p.queue.take()
			// If first did not begin the create, BeforeAcquire prepares r for first.
			p.grantLocked(first, r, c.w == first && c.waits())
		}
		if first != nil {
			first.wake()
		}
	}
	p.balanceLocked()
}

// createFailed delivers err to the acquirer that has begun the create, if that acquirer still waits.
// For the other waiters see outage.go and full.go.
func (p *Pool[T]) createFailed(c *creation[T], err error) {
	var v verdict
	var denied, kept bool
	defer func() {
		p.deliverError(c, err, denied, kept, v)
		p.report("Create", err)
	}()
	denied = p.says("Denied", p.cfg.Denied, err)
	if kept = p.says("Full", p.cfg.Full, err) && p.refusedInCrowd(c); !kept {
		v = p.judgeCreate(err)
	}
}

// preserves asks Config.Preserve.
func (p *Pool[T]) preserves(v T) (yes bool) {
	if p.cfg.Preserve == nil {
		return false
	}
	_ = call("Preserve", func() error { yes = p.cfg.Preserve(v); return nil }, func(error) {})
	return yes
}

// says asks Config.Denied or Config.Full.
func (p *Pool[T]) says(hook string, ask func(error) bool, err error) (yes bool) {
	if ask == nil {
		return false
	}
	_ = call(hook, func() error { yes = ask(err); return nil }, func(error) {})
	return yes
}

func (p *Pool[T]) deliverError(c *creation[T], err error, denied, kept bool, v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.createEndedLocked(c)
	p.total--
	p.count.createErrors++
	p.growth.proven = 0
	p.lastCreateErr = err
	if kept {
		p.fullLocked(c)
	} else {
		p.outageGrowsLocked(denied)
		p.failCreationLocked(c, err)
	}
	p.applyLocked(v)
	p.balanceLocked()
}

func (p *Pool[T]) createEndedLocked(c *creation[T]) {
	// The acquirer that has begun c may follow: when it comes back, it must not seem to have a create.
	if w := c.w; w != nil && w.seq == c.seq && w.state < stateDelivered {
		w.creates = false
	}
	p.creating--
	switch {
	case c.alone:
		p.reserved--
	case c.refill:
		p.refilling--
	}
	p.creations = slices.DeleteFunc(p.creations, func(other *creation[T]) bool { return other == c })
	if p.createEnded != nil {
		close(p.createEnded)
		p.createEnded = nil
	}
}

// bounded gives ctx the timeout d. If d is not above 0, there is no timeout.
func (p *Pool[T]) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

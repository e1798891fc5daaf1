package pool

import (
	"context"
	"math/rand/v2"
	"time"
)

// wantedLocked is how many creates are to be started for the queue and for
// Min and MinIdle.
func (p *Pool[T]) wantedLocked() int {
	if p.mode&(modeClosed|modeInactive) != 0 || !p.used {
		return 0
	}
	room := p.roomLocked()
	if room <= 0 {
		return 0
	}
	shared := p.creating - p.reserved
	if p.mode&modeRecovering != 0 {
		// One probe at a time, and a create is one.
		if p.queue.head != nil && p.creating == 0 && p.mayGrantLocked(p.queue.head) {
			return 1
		}
		return 0
	}
	wanted := p.queue.n - shared
	if !p.refillHold {
		// Creates beyond the queue's end up idle; those for the queue count
		// for Min as well.
		live := p.total - p.destroying
		spare := max(0, shared-p.queue.n)
		wanted = max(wanted,
			p.min-live,
			max(0, wanted)+p.minIdle-p.idle.n-p.checking-spare)
	}
	return min(wanted, room)
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
	}
	return min(p.max-p.total, limit-running)
}

// spareLocked reports whether a create may be started now for one acquirer
// alone. The growing by doubling is not for these: each is used, whatever
// comes back meanwhile.
func (p *Pool[T]) spareLocked() bool {
	limit := p.cfg.MaxConcurrentCreates
	return p.total < p.max && (limit <= 0 || p.creating < limit)
}

// startCreateLocked starts one create: for w alone, or for whoever is first
// in the queue when it ends.
func (p *Pool[T]) startCreateLocked(w *waiter[T]) {
	p.total++
	p.creating++
	// Its causer is the first waiter for whom no create is running yet.
	causer := w
	if w != nil {
		p.reserved++
	} else {
		causer = p.queue.head
		for i := p.creating - p.reserved; i > 1 && causer != nil; i-- {
			causer = causer.next
		}
	}
	ctx := context.Background()
	if causer != nil {
		ctx = causer.ctx
	}
	go p.create(ctx, w, p.epoch)
}

// reserveLocked starts a create for w alone.
func (p *Pool[T]) reserveLocked(w *waiter[T]) {
	w.state = stateReserved
	p.alone.push(w)
	p.startCreateLocked(w)
}

// creating is the key of the resource that a context of Create is for.
type creating struct{}

// create runs Create and delivers what comes of it.
func (p *Pool[T]) create(cause context.Context, w *waiter[T], epoch uint64) {
	ctx, cancel := p.bounded(context.WithoutCancel(cause), p.cfg.CreateTimeout)
	defer cancel()
	defer context.AfterFunc(p.stop, cancel)()
	r := &resource[T]{pool: p, epoch: epoch, expires: never}
	detached("Create",
		func() (err error) {
			r.value, err = p.cfg.Create(context.WithValue(ctx, creating{}, r))
			return err
		},
		func(err error) {
			if err != nil {
				p.createFailed(w, err)
			} else {
				p.created(w, r)
			}
		})
}

// created delivers r: to w, else to the first in the queue, else to be idle.
//
// A resource whose creating began before a Flush is still given to somebody
// who waits, and replaced when it comes back: a row of flushes must not keep
// everybody waiting. It is not kept idle.
func (p *Pool[T]) created(w *waiter[T], r *resource[T]) {
	var v verdict
	// Deferred, because the Strategy is foreign code and may end the
	// goroutine.
	defer func() { p.deliver(w, r, v) }()
	v = p.judgeCreate(nil)
}

func (p *Pool[T]) deliver(w *waiter[T], r *resource[T], v verdict) {
	if p.cfg.MaxLifetime > 0 {
		r.expires = later(p.since(), p.cfg.MaxLifetime)
		if p.cfg.Jitter > 0 {
			r.expires = later(r.expires, rand.N(p.cfg.Jitter))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.createEndedLocked(w)
	p.count.creates++
	p.lastCreateErr = nil
	p.refillHold = false
	p.applyLocked(v)
	p.armSweepLocked()
	switch {
	case w != nil && w.state == stateReserved:
		p.alone.remove(w)
		p.grantLocked(w, r, true)
		w.wake()
	case p.queue.head != nil && p.mayGrantLocked(p.queue.head):
		first := p.queue.pop()
		p.grantLocked(first, r, true)
		first.wake()
	default:
		if next := p.putLocked(r); next != nil {
			next.wake()
		}
	}
	p.balanceLocked()
}

// createFailed delivers err: to w, else to the first in the queue. Where as
// many creates are still running as there are waiters nobody gets it, as they
// all may yet be served.
func (p *Pool[T]) createFailed(w *waiter[T], err error) {
	var v verdict
	defer func() {
		p.deliverError(w, err, v)
		p.report("Create", err)
	}()
	v = p.judgeCreate(err)
}

func (p *Pool[T]) deliverError(w *waiter[T], err error, v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.createEndedLocked(w)
	p.total--
	p.count.createErrors++
	p.lastCreateErr = err
	switch {
	case p.mode&modeClosed != 0:
	case w != nil && w.state == stateReserved:
		p.alone.remove(w)
		p.failLocked(w, &CreateError{err})
	case p.queue.n > p.creating-p.reserved:
		p.failLocked(p.queue.pop(), &CreateError{err})
	case p.queue.n == 0:
		// It was for Min or MinIdle. The next sweep tries again, or the next
		// create that succeeds; not we, at once and forever.
		p.refillHold = true
		p.armSweepLocked()
	}
	p.applyLocked(v)
	p.balanceLocked()
}

func (p *Pool[T]) createEndedLocked(w *waiter[T]) {
	p.creating--
	if w != nil {
		p.reserved--
	}
	if p.createEnded != nil {
		close(p.createEnded)
		p.createEnded = nil
	}
}

// bounded gives ctx a timeout where there is one.
func (p *Pool[T]) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

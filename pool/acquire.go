package pool

import (
	"context"
	"errors"
	"time"
)

// ticket is an acquirer's place in the order of arrival. It survives a
// BeforeAcquire that refuses a resource.
type ticket struct {
	seq   uint64
	start int64 // pool time when the waiting began; 0: has not waited
	who   any   // the argument of AcquireAs
	// timeless: the deadline of the attempt's context has passed, but the context has not ended.
	timeless bool
	how      Priority
	refusal  error // the error of BeforeAcquire for the last refused resource
}

// Acquire lends a resource: an idle one, or else the first that comes back or, if Max
// allows, a new one. Acquirers are served in the order in which they came.
//
// It fails with ErrClosed on a closed pool, with a *CreateError if the Create that it waited for failed or if the
// last creates have all failed (CreateError.Ago), and with an *AcquireError in all other cases: ctx
// is done, the wait took longer than Config.AcquireTimeout, too many acquirers wait, or the circuit
// breaker refuses.
func (p *Pool[T]) Acquire(ctx context.Context) (Lease[T], error) {
	return p.acquire(ctx, nil, PriorityNormal)
}

// AcquireAs is Acquire with a mark for the caller: Pool.Waiting returns who as Waiting.Who.
func (p *Pool[T]) AcquireAs(ctx context.Context, who any) (Lease[T], error) {
	return p.acquire(ctx, who, PriorityNormal)
}

// AcquireWith is AcquireAs for an acquirer with a priority: see Config.QueueTarget and OnlyIdle.
func (p *Pool[T]) AcquireWith(ctx context.Context, who any, priority Priority) (Lease[T], error) {
	return p.acquire(ctx, who, min(priority, OnlyIdle))
}

// AcquireNow lends an idle resource, or creates one for this caller if Max allows. Both happen only
// if no other acquirer waits. AcquireNow never queues: if it would have to wait for another
// borrower, it fails with ErrNoneNow. While its resource is being created, it waits for that
// resource alone, until ctx is done. During an outage (see CreateError.Ago) it creates no sooner
// than Acquire does.
func (p *Pool[T]) AcquireNow(ctx context.Context) (Lease[T], error) {
	return p.acquire(ctx, nil, atOnce)
}

// acquire gets a resource: an idle one, one that comes back, or a new one. If BeforeAcquire refuses the resource, the
// acquirer goes back to its place in the queue.
func (p *Pool[T]) acquire(ctx context.Context, who any, how Priority) (Lease[T], error) {
	if ctx.Err() != nil {
		return Lease[T]{}, p.refuseDone(ctx, 0, nil)
	}
	t := ticket{who: who, how: how}
	var refused *resource[T]
	for {
		r, w, err := p.enter(ctx, &t, refused)
		refused = nil
		fresh := false
		if w != nil {
			r, fresh, err = p.await(ctx, w, &t)
		}
		if err == errLate {
			if err = p.late(ctx, &t); err == nil {
				continue
			}
		}
		if err != nil {
			return Lease[T]{}, err
		}
		l := Lease[T]{r, r.stamp}
		if fresh || p.cfg.BeforeAcquire == nil {
			return l, nil
		}
		if err = p.prepare(ctx, r, &t); err == nil {
			return l, nil
		}
		if err != errRefused {
			return Lease[T]{}, err
		}
		refused = r
	}
}

// enter lends an idle resource to attempt t if nobody waits, and otherwise makes a waiter. refused, if it is not nil, is
// the resource that BeforeAcquire has refused: until the acquirer is back in its place, no later acquirer is served.
func (p *Pool[T]) enter(ctx context.Context, t *ticket, refused *resource[T]) (r *resource[T], w *waiter[T], err error) {
	p.lock()
	if p.mode != 0 {
		p.consult() // now: from here on the lock is kept, so that an attempt with a higher number stands behind t
	}
	if refused != nil {
		refused.w = nil // the acquirer still waits; its wait is counted when the wait ends
		p.dropUnpreparedLocked(refused)
	}
	if t.seq == 0 && p.mode == 0 && p.idle.n > 0 && p.queue.empty() {
		r = p.lendIdleLocked(t)
	} else if w, err = p.enterLocked(ctx, t); err != nil {
		p.balanceLocked() // a refused resource may have left the pool unbalanced
	}
	p.mu.Unlock()
	return r, w, err
}

// TryAcquire lends an idle resource if there is one and nobody waits. It never creates
// a resource, and blocks no longer than BeforeAcquire does.
func (p *Pool[T]) TryAcquire() (Lease[T], bool) {
	for {
		p.mu.Lock()
		if p.idle.n > 0 && p.queue.empty() {
			p.consult()
		}
		var t ticket
		if p.idle.n == 0 || !p.queue.empty() || p.mode&modeClosed != 0 || p.admitLocked(&t) != nil {
			p.mu.Unlock()
			return Lease[T]{}, false
		}
		r := p.lendIdleLocked(&t)
		l := Lease[T]{r, r.stamp}
		p.mu.Unlock()
		if p.cfg.BeforeAcquire == nil || p.tryPrepare(r) {
			return l, true
		}
	}
}

func (p *Pool[T]) tryPrepare(r *resource[T]) bool {
	ctx, cancel := p.bounded(context.Background(), p.cfg.CheckTimeout)
	defer cancel()
	if err := p.callBeforeAcquire(ctx, r); err != nil {
		p.reportRefusal(r, err)
		p.dropUnprepared(r)
		return false
	}
	return true
}

// lendIdleLocked lends one idle resource to attempt t, which does not queue.
func (p *Pool[T]) lendIdleLocked(t *ticket) *resource[T] {
	r := p.takeIdleLocked()
	p.acquires++
	p.peak = max(p.peak, p.lentLocked())
	if p.mode&modeRecovering != 0 {
		r.probe = t.seq
	}
	if p.target != 0 {
		r.lentAt = p.clock.Coarse()
	}
	if p.idle.n < p.minIdle {
		p.balanceLocked()
	}
	if p.cfg.BeforeAcquire != nil && t.seq == 0 { // if it refuses r, the attempt goes on
		p.seq++
		t.seq = p.seq
		if p.clock.Coarse() != r.idleSince { // it may have to ask whether r is still good
			t.start = p.nowLocked()
		}
	}
	return r
}

// errRefused: BeforeAcquire has refused a resource, and the acquirer goes on.
var errRefused = errors.New("pool: the resource was refused")

// prepare runs BeforeAcquire on r, which attempt t has got. After errRefused the caller ends r.
func (p *Pool[T]) prepare(ctx context.Context, r *resource[T], t *ticket) error {
	if ctx.Err() != nil {
		return p.passOver(ctx, r, t)
	}
	bounded, d := ctx, p.cfg.AcquireTimeout
	if d > 0 && t.refusal != nil {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, d-p.sinceStart(t.start))
		defer cancel()
	}
	why := p.callBeforeAcquire(bounded, r)
	if why == nil {
		return nil
	}
	p.reportRefusal(r, why)
	t.refusal = why
	switch {
	case ctx.Err() != nil:
		p.dropUnprepared(r)
		return p.refuseDone(ctx, t.start, t.refusal)
	case d > 0 && t.start != 0 && p.sinceStart(t.start) >= d:
		p.dropUnprepared(r)
		return p.refuseTimeout(t)
	}
	return errRefused
}

// passOver gives r to the next acquirer in order, because ctx is done. BeforeAcquire
// has not begun, so r is as good as before.
func (p *Pool[T]) passOver(ctx context.Context, r *resource[T], t *ticket) error {
	p.mu.Lock()
	p.count.revoked++
	p.passOnLocked(r)
	p.mu.Unlock()
	return p.refuseDone(ctx, t.start, t.refusal)
}

// dropUnprepared ends r, whose BeforeAcquire failed.
func (p *Pool[T]) dropUnprepared(r *resource[T]) {
	p.mu.Lock()
	p.dropUnpreparedLocked(r)
	p.balanceLocked()
	p.mu.Unlock()
}

func (p *Pool[T]) dropUnpreparedLocked(r *resource[T]) {
	p.count.revoked++
	p.endProbeLocked(r)
	p.retireLocked(r, ReasonBeforeAcquire)
}

// passOnLocked gives r, whose acquirer has left, to the next acquirer in order.
func (p *Pool[T]) passOnLocked(r *resource[T]) {
	p.endProbeLocked(r)
	if w := r.w; w != nil {
		r.w = nil
		p.recycleLocked(w)
	}
	if w := p.putLocked(r); w != nil {
		w.wake()
	}
	p.balanceLocked()
}

// enterLocked admits attempt t and makes a waiter for t: in the queue, or reserved if t must not queue.
// The waiter may have its result already.
func (p *Pool[T]) enterLocked(ctx context.Context, t *ticket) (*waiter[T], error) {
	again := t.seq != 0
	if p.mode != 0 {
		if err := p.admitLocked(t); err != nil {
			return nil, err
		}
	} else if !again {
		p.seq++
		t.seq = p.seq
	}
	if p.outage.failures > 0 && p.idle.n == 0 {
		if err := p.rememberedLocked(); err != nil {
			p.leaveLocked(t.seq)
			return nil, err
		}
	}
	if err := p.mayEnterLocked(t, again); err != nil {
		p.leaveLocked(t.seq)
		return nil, err
	}
	if t.start == 0 && (again || p.queue.empty()) { // else a queued waiter has called nowLocked, and await reads the clock
		t.start = p.nowLocked()
	}
	w := p.newWaiterLocked(ctx, t)
	switch {
	case t.how >= OnlyIdle:
		p.enterNowLocked(w)
	case again:
		p.readmitLocked(w) // its resource was refused
		p.balanceLocked()
	default:
		p.enterQueueLocked(w)
	}
	return w, nil
}

// mayEnterLocked returns the error of an attempt that gets no waiter; nil: the attempt gets one.
func (p *Pool[T]) mayEnterLocked(t *ticket, again bool) error {
	if t.how >= OnlyIdle {
		if !p.queue.empty() || p.idle.n == 0 && (t.how == OnlyIdle || !p.spareLocked() || p.pausingLocked()) {
			return ErrNoneNow
		}
		return nil
	}
	if n := p.cfg.MaxWaiters; n > 0 && !again && t.how != PriorityAgain && p.backlogLocked() >= n {
		p.count.refused++
		return p.acquireErrorLocked(ErrTooManyWaiters, 0)
	}
	if p.target != 0 && !again {
		return p.mayWaitLocked(t)
	}
	return nil
}

// enterQueueLocked puts w at the end of the queue.
func (p *Pool[T]) enterQueueLocked(w *waiter[T]) {
	w.state = stateQueued
	if p.target != 0 && !w.judged && p.backlogLocked() >= 0 {
		w.ahead = p.predictedLocked() + p.admission.hold.mean
	}
	p.queue.push(w)
	if p.expireAt == 0 && p.cfg.AcquireTimeout > 0 {
		p.armExpiryLocked(p.cfg.AcquireTimeout)
	}
	if p.cfg.StarveAfter > 0 && !p.starvation.armed {
		p.armStarvingLocked(p.cfg.StarveAfter)
	}
	p.used = true
	if p.idle.n > 0 || p.total < p.max {
		p.balanceLocked()
	}
}

// enterNowLocked gives w an idle resource, or has one created for it.
func (p *Pool[T]) enterNowLocked(w *waiter[T]) {
	if p.idle.n > 0 {
		p.grantLocked(w, p.takeIdleLocked(), false)
		w.wake()
	} else {
		p.used = true
		p.reserveLocked(w)
	}
	p.balanceLocked()
}

// backlogLocked is how many queued acquirers have no create and no resource that Max still allows.
func (p *Pool[T]) backlogLocked() int {
	return p.queue.n - (p.creating - p.reserved) - max(0, p.allowedLocked()-p.total)
}

// await sleeps until w has its result or ctx is done.
func (p *Pool[T]) await(ctx context.Context, w *waiter[T], t *ticket) (*resource[T], bool, error) {
	if t.start == 0 {
		t.start = p.since()
		w.start.Store(t.start)
	}
	if until, ok := ctx.Deadline(); ok && !t.timeless {
		end := max(1, p.clock.Of(until))
		w.until.Store(end)
		if w.ahead != 0 && w.ahead > end-t.start {
			if err := p.refuseHopeless(w, t); err != nil {
				return nil, false, err
			}
		}
	}
	if t.how == atOnce && p.cfg.AcquireTimeout > 0 { // expireLocked looks only at the queue
		if !p.awaitAlone(ctx, w, t.start) {
			return nil, false, p.leave(ctx, w, t)
		}
	} else if done := ctx.Done(); done == nil {
		<-w.ch
	} else {
		select {
		case <-w.ch:
		case <-done:
			return nil, false, p.leave(ctx, w, t)
		}
	}
	if w.err != nil {
		return nil, false, p.failed(w, t)
	}
	w.waited = p.since() - t.start
	return w.r, w.fresh, nil
}

// failed returns the error of w. It adds the refusal and the wait, which only the acquirer knows.
// The pool does not use w again, unless w was served.
func (p *Pool[T]) failed(w *waiter[T], t *ticket) error {
	if w.err == ErrServed {
		return p.served(w)
	}
	w.waited = p.since() - t.start
	p.mu.Lock()
	p.waits.record(w.waited)
	p.mu.Unlock()
	switch own := w.err.(type) { //nolint:errorlint // it was made for this acquirer
	case *AcquireError:
		own.Refusal, own.Waited = t.refusal, time.Duration(w.waited)
	case *CreateError:
		own.Waited = time.Duration(w.waited)
	}
	return w.err
}

// awaitAlone waits for the result of w, which is not in the queue. It reports whether w has a result.
func (p *Pool[T]) awaitAlone(ctx context.Context, w *waiter[T], start int64) bool {
	select {
	case <-w.ch:
		return true
	default:
	}
	timer := time.NewTimer(p.cfg.AcquireTimeout - p.sinceStart(start))
	defer timer.Stop()
	select {
	case <-w.ch:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

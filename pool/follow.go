package pool

import "time"

// A pipeline: an acquirer that has got a resource (the leader) takes acquirers that wait (the followers)
// along, does their work on its resource, and tells each one that it is served, or puts it back.
//
// A follower is a waiter in the list p.following. No resource is delivered to it. Its acquirer sleeps on
// as if it were in the queue, so its context and AcquireTimeout go on. Four things end the following:
// Served, Return, the end of the lease, or the acquirer's own end (abandon, expireLocked). Each of them
// asks for stateFollowing and leaves it in one section under the lock, so exactly one of them succeeds. If
// the acquirer's context ends just then, abandon finds what the winner has made of the waiter: served, queued
// again, given a resource, or failed.
//
// A call on an old Follower finds another state or another pipeline, also if the waiter belongs to another
// acquirer now: each TakeAlong that takes somebody has a number of its own. So such a call does nothing.
//
// The breaker's probe never follows, because TakeAlong takes nobody while the breaker is Recovering.
// Close and Deactivate do not end a follower: its work is under way on a resource that is lent, and no
// borrower is interrupted. They are over for a follower that comes back later: see comeBackLocked.

// reach is how many waiters TakeAlong looks at beyond those that it may take: a crowd that it may not take
// must not make it hold the lock for long.
const reach = 64

// Follower is an acquirer that TakeAlong took out of the queue. It is a small value, to be copied freely.
// The leader ends each follower with Served or Return. Calls on a Follower that has ended do nothing.
type Follower[T any] struct {
	pool     *Pool[T]
	w        *waiter[T]
	pipeline uint64
	who      any
	waited   int64
}

// TakeAlong takes acquirers out of the queue, the first of them first, and returns them as followers of l.
// It takes as many as most returns, which gets the number of those in the queue, and how many resources there
// may be: Config.Max, or fewer if the server allows fewer. TakeAlong takes only acquirers for which may
// returns true; may gets the argument of AcquireAs. The others keep their places. TakeAlong looks at the first
// most + 64 in the queue, and takes nobody while the circuit breaker is Recovering, or if l has been given back.
//
// The borrower of l does the work of the followers on its own resource. A follower waits on, but gets no
// resource, until it has ended: by Served or Return, by its context, or by Config.AcquireTimeout (see Works).
// Release and Discard of l return the followers that have not ended.
//
// most and may run under the pool's lock: they must be quick, must not call the pool, and must take no lock.
func (l Lease[T]) TakeAlong(most func(waiting, resources int) int, may func(who any) bool) []Follower[T] {
	if l.r == nil {
		return nil
	}
	p := l.r.pool
	p.lock()
	defer p.mu.Unlock() // most and may are foreign code and may panic; nobody has been taken by then
	if p.queue.empty() || l.r.stamp != l.stamp || p.mode&modeRecovering != 0 {
		return nil
	}
	now := p.nowLocked()
	followers := p.pickLocked(most(p.queue.n, max(1, p.serverAllowsLocked())), may, now)
	if followers != nil {
		p.count.pipelines++
	}
	for i := range followers {
		p.followLocked(&followers[i], l.r, now)
	}
	return followers
}

// pickLocked says whom TakeAlong is to take.
func (p *Pool[T]) pickLocked(most int, may func(who any) bool, now int64) (picked []Follower[T]) {
	most = min(most, p.queue.n)
	looks := most + reach
	for w := p.queue.oldest(); w != nil && looks > 0 && len(picked) < most; w = p.queue.after(w) {
		looks--
		if until := w.until.Load(); until != 0 && until <= now || !may(w.who) {
			continue // who is late is about to leave; see firstLocked
		}
		if picked == nil {
			picked = make([]Follower[T], 0, most)
		}
		picked = append(picked, Follower[T]{pool: p, w: w, pipeline: p.count.pipelines + 1, who: w.who})
	}
	return picked
}

// followLocked moves a waiter from the queue to the followers of r. No balanceLocked is needed: fewer
// wait. No timer is needed: those of the queue are set for this waiter already.
func (p *Pool[T]) followLocked(f *Follower[T], r *resource[T], now int64) {
	w := f.w
	p.queue.remove(w)
	p.following.push(w)
	w.state, w.pipeline, w.r, w.works, w.judged = stateFollowing, f.pipeline, r, false, true
	r.leads++
	w.waited = 0
	if start := w.start.Load(); start != 0 { // else its acquirer has not looked at the clock yet
		w.waited = max(0, now-start)
	}
	f.waited = w.waited
}

// unfollowLocked takes w out of the followers. The caller gives w its next state.
func (p *Pool[T]) unfollowLocked(w *waiter[T]) {
	p.following.remove(w)
	w.r.leads--
	w.r = nil
}

// comeBackLocked puts w, which follows nobody any more, where it would be if it had waited all the time.
// The caller must call balanceLocked next.
func (p *Pool[T]) comeBackLocked(w *waiter[T]) {
	switch {
	case p.mode&modeClosed != 0:
		p.failLocked(w, p.acquireErrorLocked(ErrClosed, w.start.Load()))
	case p.mode&modeInactive != 0:
		p.count.unavailable++
		p.failLocked(w, p.acquireErrorLocked(ErrUnavailable, w.start.Load()))
	default:
		p.readmitLocked(w)
	}
}

// returnAllLocked puts all followers of r back that have not ended. The leader ends its lease: it may have
// forgotten them, for example because it has panicked.
func (p *Pool[T]) returnAllLocked(r *resource[T]) {
	if r.leads == 0 {
		return
	}
	for w := p.following.oldest(); w != nil && r.leads > 0; {
		next := p.following.after(w) // read before w goes to another list
		if w.r == r {
			p.unfollowLocked(w)
			p.comeBackLocked(w)
		}
		w = next
	}
	p.balanceLocked()
}

// followsLocked reports whether f has not ended.
func (f Follower[T]) followsLocked() bool {
	return f.w.state == stateFollowing && f.w.pipeline == f.pipeline
}

// Who is the argument of AcquireAs; nil: there was none.
func (f Follower[T]) Who() any { return f.who }

// Waited is how long the acquirer had waited when it was taken along.
func (f Follower[T]) Waited() time.Duration { return time.Duration(f.waited) }

// Works says that the leader is doing the follower's work, and that this takes long: AcquireTimeout, which bounds
// the wait for a resource, does not end the follower any more. Works reports whether f follows.
func (f Follower[T]) Works() bool {
	f.pool.lock()
	defer f.pool.mu.Unlock()
	if !f.followsLocked() {
		return false
	}
	f.w.works = true
	return true
}

// Served says that the leader has done the follower's work: its Acquire returns ErrServed. If Served
// returns true, this Acquire returns nothing else, even if its context ends now. If Served returns false,
// the follower had left or ended before, and nothing has happened. What the leader has written before it
// calls Served, the acquirer may read after ErrServed.
// give, if not nil, is called before Served returns true, under the pool's lock: it stores what the acquirer is to
// find, and nothing else. So an answer that comes late does not meet that of another pipeline.
func (f Follower[T]) Served(give func()) bool {
	p := f.pool
	p.lock()
	if !f.followsLocked() {
		p.mu.Unlock()
		return false
	}
	if give != nil {
		give()
	}
	if p.target != 0 {
		p.admission.serve(p.clock.Coarse())
		f.w.r.served++
	}
	p.unfollowLocked(f.w)
	f.w.state, f.w.err = stateDelivered, ErrServed
	p.mu.Unlock()
	// The waiter is not used again before the acquirer has received what wake sends. An acquirer that
	// leaves between Unlock and wake does not receive; its waiter is not used again at all.
	f.w.wake()
	return true
}

// served ends an acquire that was woken with ErrServed. The acquirer has emptied w.ch, so w may be used again.
func (p *Pool[T]) served(w *waiter[T]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.pipelined++
	w.err = nil
	p.recycleLocked(w)
	return ErrServed
}

// Return puts the follower back in its place in the queue, as if it had never been taken along. If the pool
// has been closed, or the circuit breaker is Inactive, its Acquire fails instead.
func (f Follower[T]) Return() {
	p := f.pool
	p.lock()
	defer p.mu.Unlock()
	if f.followsLocked() {
		p.unfollowLocked(f.w)
		p.comeBackLocked(f.w)
		p.balanceLocked() // a resource may be idle: the queue was empty without this follower
	}
}

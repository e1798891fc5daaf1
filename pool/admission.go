package pool

import (
	"math/rand/v2"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// Admission: under overload some acquirers are refused early, so that the others are served in time. The
// rule is that of CoDel (RFC 8289), as servers use it for queues of requests (folly's Codel, Elixir's
// DBConnection): a queue that is long for a moment is a burst, and one that stays long is an overload. See
// Config.QueueTarget for what is refused, and docs/adr/0035 for why.
//
// Acquirers are judged when they come, by the wait that the last hand-overs predict, and when their turn
// comes, by the wait that they had. Most are refused when they come. No timer is needed.

// Priority says whom Config.QueueTarget refuses first.
type Priority uint8

// The priorities.
const (
	PriorityNormal Priority = iota
	// PriorityLow is refused as soon as the delay in the queue is more than half of Config.QueueTarget.
	PriorityLow
	// PriorityHigh is never refused. It is for an acquirer that has a resource already, which others wait for, and for
	// what a program needs to go on.
	PriorityHigh
	// PriorityAgain is never refused either, nor does Config.MaxWaiters bound it: the acquirer has had its turn.
	PriorityAgain
	// OnlyIdle is for an acquirer that takes an idle resource if nobody waits. Otherwise it fails with ErrNoneNow.
	OnlyIdle

	atOnce // AcquireNow's: the acquirer must not queue
)

// admission is what decides who is refused. The pool's lock protects it.
type admission struct {
	overloaded bool
	// since is when the delay was last on the present side of the target: above it if overloaded is true, else
	// not above it.
	since int64
	// spared is for how long those of PriorityLow who were refused since then would have had all resources.
	spared time.Duration
	// strained: it would be overloaded without spared.
	strained bool
	// pace is the time between two that are served while others wait, and hold is how long a resource is
	// lent, divided by those that were served with it. They are measured in coarse time: one value is wrong by a Tick, the average is not.
	pace, hold average
	served     int64 // when a waiter was served last; 0: the queue was empty since
}

// average is the average of the first values, and then a moving one.
type average struct{ mean, n int64 }

// averaged is about how many values an average remembers.
const averaged = 64

// add takes note of a value. One that is far above the average, because the machine or the server stood still,
// says little about the next ones: it counts as four averages above it, or two ticks if these are more.
func (a *average) add(ns int64) {
	d := max(0, ns) - a.mean
	if a.n == averaged {
		d = min(d, max(4*a.mean, 2*int64(bubble.Tick)))
		a.mean += d / averaged // a shift: a division takes as long as all else
		return
	}
	a.n++
	a.mean += d / a.n
}

// mostSpared bounds admission.spared, in intervals.
const mostSpared = 3

// observe takes note of a delay in the queue. While acquirers of PriorityLow are refused, a queue that stays long may
// be one that the others work off: the overload then begins later, by the time that they have been given. Until then
// they are strained.
func (a *admission) observe(now int64, above bool, interval time.Duration) {
	wait := interval
	switch {
	case above == a.overloaded:
		a.since, a.spared, a.strained = now, 0, false
		return
	case above:
		wait += min(a.spared, mostSpared*interval)
	}
	stays := time.Duration(now - a.since)
	a.strained = above && stays >= interval
	if stays >= wait {
		a.overloaded, a.since, a.spared = above, now, 0
	}
}

// serve takes note of a waiter that leaves the queue to be served, or of a follower that is served.
func (a *admission) serve(coarse int64) {
	if a.served != 0 {
		a.pace.add(coarse - a.served)
	}
	a.served = coarse
}

// limitLocked is the longest wait of an acquirer.
func (p *Pool[T]) limitLocked(priority Priority) int64 {
	switch {
	case priority == PriorityLow:
		return p.target / 2
	case p.admission.overloaded:
		return p.target + p.target/2
	case p.admission.strained:
		return 4 * p.target // with a target of a fifth of the deadlines, they have time left
	}
	return never
}

// predictedLocked is how long an acquirer that comes now will wait.
func (p *Pool[T]) predictedLocked() int64 {
	return int64(max(0, p.backlogLocked()+1)) * p.admission.pace.mean
}

// admitsAllLocked reports whether nobody is refused now.
func (p *Pool[T]) admitsAllLocked() bool { return p.target == 0 || p.mode != 0 || p.idle.n > 0 }

// mayWaitLocked judges an acquirer that is about to enter the queue.
func (p *Pool[T]) mayWaitLocked(t *ticket) error {
	a, now := &p.admission, p.clock.Coarse()
	if first := p.queue.oldest(); first == nil {
		a.served = 0
		a.observe(now, false, p.cfg.QueueInterval)
	} else if start := first.start.Load(); start != 0 && now-start > p.target {
		a.observe(now, true, p.cfg.QueueInterval) // also if nobody is served for long
	}
	if p.admitsAllLocked() || t.how >= PriorityHigh || p.backlogLocked() < 0 {
		return nil
	}
	if p.predictedLocked() > p.limitLocked(t.how) {
		return p.refuseLocked(&t.how, 0)
	}
	return nil
}

// refuseLocked counts that an acquirer is refused, and returns its error. In a dry run the error is nil,
// and the acquirer is not judged again.
func (p *Pool[T]) refuseLocked(how *Priority, start int64) error {
	if p.cfg.QueueDry {
		p.count.wouldRefuse++
		*how = PriorityHigh
		return nil
	}
	p.count.shed++
	if *how == PriorityLow {
		p.count.shedLow++
		p.admission.spared += time.Duration(p.admission.pace.mean)
	}
	err := p.acquireErrorLocked(ErrOverloaded, start)
	err.PredictedWait = time.Duration(p.predictedLocked())
	err.RetryAfter = err.PredictedWait + p.cfg.QueueInterval/2 + rand.N(p.cfg.QueueInterval)
	return err
}

// refuseHopeless judges an acquirer that has entered the queue, and whose context ends too early. With nil
// it goes on: it has its result already.
func (p *Pool[T]) refuseHopeless(w *waiter[T], t *ticket) error {
	p.lock()
	defer p.mu.Unlock()
	if w.state != stateQueued || w.judged || p.admitsAllLocked() {
		return nil
	}
	w.judged = true
	err := p.refuseLocked(&t.how, t.start)
	if err != nil {
		p.queue.remove(w)
		w.state, w.waited = stateGone, p.since()-t.start
		p.recycleLocked(w) // nothing was sent to it
	}
	return err
}

// chosenLocked returns the waiter that gets a resource which has become free. Waiters that are refused leave the queue,
// but never the last one that could be served: the resource would be idle. Nor do they while each waiter
// gets this resource or one that is being created.
func (p *Pool[T]) chosenLocked() *waiter[T] {
	w := p.firstLocked()
	if w == nil || p.admitsAllLocked() {
		return w
	}
	coarse := p.clock.Coarse()
	for ; ; w = p.queue.next() {
		if w.judged || !p.isTooLateLocked(w, coarse) || p.backlogLocked() <= 1 || !p.isFollowedLocked(w) {
			break
		}
		err := p.refuseLocked(&w.how, w.start.Load())
		if err == nil {
			break
		}
		p.queue.take()
		p.failLocked(w, err)
	}
	p.admission.serve(coarse)
	return w
}

// isTooLateLocked judges w, whose turn has come. Where the coarse time leaves no doubt, it is enough.
func (p *Pool[T]) isTooLateLocked(w *waiter[T], now int64) bool {
	start, until := w.start.Load(), w.until.Load()
	if start == 0 { // the acquirer is about to look at the clock
		start = now
	}
	hold := p.admission.hold.mean
	if soon := now + 2*int64(bubble.Tick); soon-start > p.target/2 || until != 0 && until-soon < hold {
		now = p.nowLocked()
	}
	p.admission.observe(now, now-start > p.target, p.cfg.QueueInterval)
	return now-start > p.limitLocked(w.how) || until != 0 && until-now < hold
}

// isFollowedLocked reports whether another waiter is behind w, which is the first. Those whose deadline has passed
// leave.
func (p *Pool[T]) isFollowedLocked(w *waiter[T]) bool {
	for next := p.queue.after(w); next != nil; next = p.queue.after(w) {
		if until := next.until.Load(); until == 0 || p.isBeforeLocked(until) {
			return true
		}
		p.queue.remove(next)
		p.failLocked(next, errLate)
	}
	return false
}

// AdmitAll ends admission: from now on nobody is refused because of Config.QueueTarget.
func (p *Pool[T]) AdmitAll() {
	p.lock()
	defer p.mu.Unlock()
	p.target, p.admission.overloaded, p.admission.strained = 0, false, false
}

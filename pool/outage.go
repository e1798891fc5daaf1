package pool

import (
	"math/rand/v2"
	"time"
)

// A failed create makes one acquirer fail: the acquirer that has begun it, if it still waits. So if
// only some creates fail, no more acquirers fail than creates. But if every create fails, the
// number of creates must not depend on the number of acquirers.
//
// So in an outage the pool pauses between creates for waiting acquirers. When such a create fails,
// all waiters get its error, except those with a running create of their own. No acquirer waits for
// longer than a pause and a create. An outage begins when nothing is open and many creates have
// failed in a row, or a few have failed for some time.
//
// If a server refuses us (Config.Denied), the outage begins with the first refusal, and the pauses
// are longer. An acquirer that comes during a pause, when no resource is lent, gets the error of
// the last create at once.
//
// Creates of the pool's own, for Min and MinIdle, are tried one at a time from the first
// failure on, after a pause that doubles with each try.
//
// One create that succeeds ends the outage and all pauses.

const (
	// manyFailures in a row are an outage. So are fewFailures, if the first was outageAfter ago.
	manyFailures = 100
	fewFailures  = 5
	outageAfter  = time.Second
	// If some creates succeed, 100 failures in a row are no outage: if 95 of 100 creates fail, one
	// row in 170 is that long. So after a success that follows a failure, an outage takes
	// mixedFailures in a row, for mixedLasts.
	mixedFailures = 3 * manyFailures
	mixedLasts    = 5 * time.Second
	// shortestPause and longestPause bound the pause between two creates for waiting acquirers.
	shortestPause = 20 * time.Millisecond
	longestPause  = 300 * time.Millisecond
	// shortestRefill and longestRefill bound the pause between two of the pool's own creates. A
	// random time of up to a fifth is added.
	shortestRefill = 100 * time.Millisecond
	longestRefill  = 5 * time.Second
	// shortestDenied and longestDenied bound the pause for waiting acquirers, from the first failure
	// on, if the create was refused (Config.Denied) and Config.FreshCredentials is not set.
	shortestDenied = 100 * time.Millisecond
	longestDenied  = time.Second
)

// outage describes a series of failed creates. The pool's lock protects it.
type outage struct {
	failures   int // failed creates in a row; 0: there is no series, and the fields up to nextRefill mean nothing
	firstAt    int64
	failedAt   int64
	denied     bool          // the last create was refused, and others share its error
	pause      time.Duration // between two creates for waiting acquirers; 0: no outage
	nextCreate int64         // no create starts before it, except those of Warm
	refill     time.Duration // the last pause between two of the pool's own creates
	nextRefill int64
	mixedUntil int64 // until then an outage takes mixedFailures; kept after the series

	timer   *time.Timer // calls balanceLocked; not stopped when the outage ends
	timerAt int64       // 0: the timer is not set
}

// outageGrowsLocked notes a failed create.
func (p *Pool[T]) outageGrowsLocked(denied bool) {
	o := &p.outage
	now := p.nowLocked()
	if o.failures++; o.failures == 1 {
		o.firstAt = now
	}
	o.failedAt, o.denied = now, denied && !p.cfg.FreshCredentials
	many := manyFailures
	if now < o.mixedUntil {
		many = mixedFailures
	}
	switch {
	case o.denied:
		o.pause = min(max(2*o.pause, shortestDenied), longestDenied)
	case p.liveLocked() == 0 && (o.failures >= many || o.failures >= fewFailures && now >= later(o.firstAt, outageAfter)):
		o.pause = min(max(2*o.pause, shortestPause), longestPause)
	default:
		o.pause = 0
	}
	o.nextCreate = later(now, o.pause)
	if now >= o.nextRefill {
		o.refill = min(max(2*o.refill, shortestRefill), longestRefill)
		o.nextRefill = later(now, o.refill+rand.N(o.refill/5))
	}
	if denied {
		o.nextRefill = max(o.nextRefill, later(now, longestRefill))
	}
}

// outageEndsLocked notes a create that succeeded.
func (p *Pool[T]) outageEndsLocked() {
	p.lastCreateErr = nil
	p.full.on = false
	o := &p.outage
	if o.failures == 0 {
		return
	}
	mixed := o.mixedUntil
	if o.pause == 0 {
		mixed = later(p.nowLocked(), mixedLasts)
	}
	*o = outage{timer: o.timer, timerAt: o.timerAt, mixedUntil: mixed}
}

// wantedInOutageLocked is wantedLocked while creates fail. It arms the timer if a create is
// wanted later.
func (p *Pool[T]) wantedInOutageLocked(room int) int {
	o := &p.outage
	now := p.nowLocked()
	alone := p.unservedLocked()
	minimum, idle := p.missingLocked()
	refill := p.refilling == 0 && max(minimum, idle) > 0
	switch {
	case alone > 0 && o.pause == 0:
		return min(alone, room)
	case alone > 0 && now >= o.nextCreate, refill && now >= max(o.nextRefill, o.nextCreate):
		return 1
	}
	at := int64(never)
	if alone > 0 {
		at = o.nextCreate
	}
	if refill {
		at = min(at, max(o.nextRefill, o.nextCreate))
	}
	if at != never {
		p.balanceAtLocked(at, now)
	}
	return 0
}

// unservedLocked is how many waiters have no create that was started for them. The pool's
// own creates do not count, because they may hang.
func (p *Pool[T]) unservedLocked() int {
	return p.queue.n - (p.creating - p.reserved - p.refilling)
}

// balanceAtLocked sets the timer, if it is not set for an earlier time.
func (p *Pool[T]) balanceAtLocked(at, now int64) {
	o := &p.outage
	if o.timerAt != 0 && o.timerAt <= at {
		return
	}
	o.timerAt = at
	p.setTimerLocked(&o.timer, time.Duration(at-now), p.retryLocked)
}

// retryLocked is called by the timer.
func (p *Pool[T]) retryLocked() {
	p.outage.timerAt = 0
	p.balanceLocked()
}

// pausingLocked reports whether the outage pauses creates for waiting acquirers now.
func (p *Pool[T]) pausingLocked() bool {
	o := &p.outage
	return o.failures > 0 && p.mode&modeRecovering == 0 && o.pause > 0 && p.nowLocked() < o.nextCreate
}

// rememberedLocked is the error of the last create, if that create was refused, no resource exists
// for which an acquirer could wait, and creates pause now; else nil.
func (p *Pool[T]) rememberedLocked() error {
	if !p.outage.denied || p.total != p.destroying || !p.pausingLocked() {
		return nil
	}
	return &CreateError{Err: p.lastCreateErr, Ago: max(1, p.sinceStart(p.outage.failedAt))}
}

// failCreationLocked gives the error of a create to the acquirer that has begun it and, in an
// outage, to all waiters without a create of their own.
func (p *Pool[T]) failCreationLocked(c *creation[T], err error) {
	if p.mode&modeClosed != 0 {
		return
	}
	if c.waits() {
		p.removeLocked(c.w)
		p.failLocked(c.w, &CreateError{Err: err})
	}
	if p.outage.pause > 0 {
		for n := p.unservedLocked(); n > 0; n-- {
			p.failLocked(p.queue.take(), &CreateError{Err: err})
		}
	}
}

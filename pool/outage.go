package pool

import (
	"math/rand/v2"
	"time"
)

// While creates fail, one after the other, two things slow them down.
//
// Creates of the pool's own, for Min and MinIdle, are tried one at a time, after
// a pause that doubles with each try.
//
// Creates for waiting acquirers have a pause between them, too. It begins with the fifth
// failure in a row and stays short. An acquirer that comes during the pause, when no
// resource is lent, gets the error of the last create at once. When a create fails, every
// waiter gets its error, unless a create of its own is running. So the number of creates
// does not depend on the number of waiters, and no acquirer waits for longer than a pause
// and a create.
//
// One success ends all of that.

const (
	// fewFailures in a row cause no pause: a program that has repaired the cause does not
	// expect an old error, and database/sql tries a statement three times by itself.
	fewFailures = 4
	// shortestPause and longestPause are between two creates for waiting acquirers.
	shortestPause = 20 * time.Millisecond
	longestPause  = 300 * time.Millisecond
	// shortestRefill and longestRefill are between two creates of the pool's own;
	// a random part of a fifth is added.
	shortestRefill = 100 * time.Millisecond
	longestRefill  = 5 * time.Second
	// The same where Config.Denied says so, unless Config.FreshCredentials does: from
	// the first failure on.
	shortestDenied = 100 * time.Millisecond
	longestDenied  = time.Second
)

// outage is what is known of a row of failed creates. The pool's lock protects it.
type outage struct {
	failures   int // in a row; 0: all is well, and nothing else here means anything
	failedAt   int64
	pause      time.Duration // between two creates for waiting acquirers
	nextCreate int64         // not before; of all creates but those of Warm
	refill     time.Duration // the last pause between two of the pool's own
	nextRefill int64

	timer   *time.Timer // calls balanceLocked; left alone when the outage ends
	timerAt int64       // 0: it is not set
}

// outageGrowsLocked notes a failed create.
func (p *Pool[T]) outageGrowsLocked(denied bool) {
	o := &p.outage
	now := p.since()
	o.failures++
	o.failedAt = now
	switch {
	case denied && !p.cfg.FreshCredentials:
		o.pause = min(max(2*o.pause, shortestDenied), longestDenied)
	case o.failures > fewFailures:
		o.pause = min(max(2*o.pause, shortestPause), longestPause)
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
	if p.outage.failures > 0 {
		p.outage = outage{timer: p.outage.timer, timerAt: p.outage.timerAt}
	}
}

// wantedInOutageLocked is wantedLocked while creates fail. It arms the timer if a create is
// wanted later.
func (p *Pool[T]) wantedInOutageLocked(room int) int {
	o := &p.outage
	now := p.since()
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
	if at != never && (o.timerAt == 0 || at < o.timerAt) {
		p.armOutageLocked(at, time.Duration(at-now))
	}
	return 0
}

// unservedLocked is how many waiters have no create that was started for them. The pool's
// own creates do not count: they may hang as well.
func (p *Pool[T]) unservedLocked() int {
	return p.queue.n - (p.creating - p.reserved - p.refilling)
}

func (p *Pool[T]) armOutageLocked(at int64, d time.Duration) {
	o := &p.outage
	o.timerAt = at
	if o.timer == nil {
		o.timer = time.AfterFunc(d, p.retry)
	} else {
		o.timer.Reset(d)
	}
}

// retry is called by the timer.
func (p *Pool[T]) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage.timerAt = 0
	p.balanceLocked()
}

// pausingLocked reports whether no create may be started for waiting acquirers, because
// others have just failed.
func (p *Pool[T]) pausingLocked() bool {
	o := &p.outage
	return o.failures > 0 && p.mode&modeRecovering == 0 && o.pause > 0 && p.since() < o.nextCreate
}

// rememberedLocked is the error of the last create, for an acquirer that would
// wait for nothing but the end of the pause; nil for any other.
func (p *Pool[T]) rememberedLocked() error {
	if p.total != p.destroying || !p.pausingLocked() {
		return nil
	}
	return &CreateError{Err: p.lastCreateErr, Ago: max(1, p.sinceStart(p.outage.failedAt))}
}

// failUnservedLocked gives the error of a create to waiters without a create of their own:
// to the first, so that the next one may try, or during an outage to all.
func (p *Pool[T]) failUnservedLocked(err error, most int) {
	if p.outage.pause > 0 {
		most = p.queue.n
	}
	for n := min(p.unservedLocked(), most); n > 0; n-- {
		p.failLocked(p.queue.pop(), &CreateError{Err: err})
	}
}

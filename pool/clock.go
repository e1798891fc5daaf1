package pool

import (
	"math"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// The coarse clock. A release needs the time, to stamp when a resource became
// idle and to see whether it is too old, but reading the real clock costs as
// much as the rest of a cycle. So a timer writes the time into Pool.now, once a tick. MaxLifetime
// and MaxIdleTime are kept with an error of one tick at most.
//
// The clock ticks only while the pool is used. If a tick finds no acquire since the last tick, it
// puts the clock to sleep. The next release reads the real clock and wakes the coarse clock. A
// closed pool's clock does not wake any more. Acquirers that wait read the real clock: they sleep
// anyway.

const (
	finestTick   = time.Millisecond
	coarsestTick = time.Second
)

// tick is the resolution that suits the limits: about a percent of the shorter limit. 0: there is
// no limit, so no clock.
func (c *Config[T]) tick() time.Duration {
	shortest := shortestOf(c.MaxLifetime, c.MaxIdleTime)
	if shortest == 0 {
		return 0
	}
	return min(max(shortest/64, finestTick), coarsestTick)
}

// shortestOf returns the shortest duration that is not 0.
func shortestOf(ds ...time.Duration) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for _, d := range ds {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	if shortest == math.MaxInt64 {
		return 0
	}
	return shortest
}

func (p *Pool[T]) wakeClockLocked() {
	p.now = p.nowLocked()
	if p.mode&modeClosed != 0 || p.clock.World().Guest() {
		return
	}
	p.asleep = false
	if p.tickEvery == 0 {
		return
	}
	p.tickSeen = p.acquires
	p.setTimerLocked(&p.tickTimer, p.tickEvery, p.tickLocked)
}

func (p *Pool[T]) tickLocked() {
	p.now = p.nowLocked()
	if p.acquires == p.tickSeen || p.mode&modeClosed != 0 {
		p.asleep = true
		return
	}
	p.tickSeen = p.acquires
	p.tickTimer.Reset(p.tickEvery)
}

// since is pool time, read from the real clock; never 0.
func (p *Pool[T]) since() int64 { return p.clock.Now() }

// nowLocked is since, under the lock. If the use of the pool has moved into a bubble of
// testing/synctest, or out of it, nowLocked drops the waiters and timers of the other side. Code that
// needs a waiter of the free list or a timer must call nowLocked first.
func (p *Pool[T]) nowLocked() int64 {
	now := p.since()
	if p.clock.World().Guest() || bubble.Leapt(now, p.read) {
		if p.clock.Follow(p.read) {
			p.moveLocked()
		}
		now = p.since()
	}
	p.read = now
	return now
}

// moveLocked forgets the waiters and timers of the other side: the pool may neither use nor stop them.
// A timer that still fires does nothing; see setTimerLocked. Use on both sides at once is not
// supported: the use of the other side's channel would end the process.
func (p *Pool[T]) moveLocked() {
	p.free, p.asleep = nil, true
	p.sweepTimer, p.sweepArmed = nil, false
	p.expireTimer, p.expireArmed = nil, false
	p.starvation.timer, p.starvation.armed = nil, p.starvation.running
	p.outage.timer, p.outage.timerAt = nil, 0
	p.tickTimer = nil
}

// setTimerLocked calls f under the lock after d. No other function sets timers of the pool that
// outlive a call.
func (p *Pool[T]) setTimerLocked(timer **time.Timer, d time.Duration, f func()) {
	if *timer != nil {
		(*timer).Reset(d)
		return
	}
	world := p.clock.World()
	*timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.clock.World() == world {
			f()
		}
	})
}

// isBeforeLocked reports whether t is in the future. If t is far away, the coarse clock answers. The
// answer may be wrong if a tick is late by a whole tick. Then a resource goes to an acquirer that has
// just left, and that acquirer passes the resource on.
func (p *Pool[T]) isBeforeLocked(t int64) bool {
	if !p.asleep && p.tickEvery > 0 && t-p.now > 2*int64(p.tickEvery) {
		return true
	}
	return p.nowLocked() < t
}

func (p *Pool[T]) sinceStart(start int64) time.Duration {
	return time.Duration(p.since() - start)
}

// never is a pool time that does not come.
const never = math.MaxInt64

// later is the pool time d after t, or never.
func later(t int64, d time.Duration) int64 {
	if int64(d) > never-t {
		return never
	}
	return t + int64(d)
}

package pool

import (
	"math"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// A release needs the time, to stamp when a resource became idle and to see whether it is too old,
// but reading the exact time costs as much as the rest of a cycle. So a release reads the coarse
// time, and MaxLifetime and MaxIdleTime are kept with an error of bubble.Tick at most. Acquirers that
// wait read the exact time: they sleep anyway.

// since is pool time, exactly; never 0.
func (p *Pool[T]) since() int64 { return p.clock.Fine() }

// nowLocked is since, under the lock. If the use of the pool has moved into a bubble of
// testing/synctest, or out of it, nowLocked drops the waiters and timers of the other side. Code that
// needs a waiter of the free list or a timer must call nowLocked first.
func (p *Pool[T]) nowLocked() int64 {
	now := p.since()
	if world := p.clock.World(); world != p.world {
		p.world = world
		p.moveLocked()
	}
	return now
}

// moveLocked is called when the pool is used in a bubble of testing/synctest, or outside again. It forgets the waiters and
// timers of the other side: the pool may neither use nor stop them.
// A timer that still fires does nothing; see setTimerLocked. Use on both sides at once is not
// supported: the use of the other side's channel would end the process.
func (p *Pool[T]) moveLocked() {
	p.free = nil
	p.sweepTimer, p.sweepArmed = nil, false
	p.expireTimer, p.expireAt = nil, 0
	p.starvation.timer, p.starvation.armed = nil, p.starvation.running
	p.outage.timer, p.outage.timerAt = nil, 0
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

// isBeforeLocked reports whether t is in the future. If t is far away, the coarse time answers. The
// answer may be wrong if a tick is late by a whole tick. Then a resource goes to an acquirer that has
// just left, and that acquirer passes the resource on.
func (p *Pool[T]) isBeforeLocked(t int64) bool {
	return t-p.clock.Coarse() > 2*int64(bubble.Tick) || p.nowLocked() < t
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

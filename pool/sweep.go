package pool

import (
	"context"
	"time"
)

// sweepEvery is the time between two sweeps: an idle resource exceeds its limit by a quarter of the
// limit at most, and by CheckInterval at most.
func (p *Pool[T]) sweepEvery() time.Duration {
	every := time.Duration(never)
	for _, d := range []time.Duration{p.cfg.CheckInterval, p.cfg.MaxLifetime / 4, p.cfg.MaxIdleTime / 4} {
		if d > 0 {
			every = min(every, d)
		}
	}
	if every == never {
		every = DefaultCheckInterval // for Min alone
	}
	return max(every, time.Millisecond)
}

// armSweepLocked starts the sweeps, which stop by themselves when there is nothing to sweep.
func (p *Pool[T]) armSweepLocked() {
	if p.sweepArmed || p.mode&modeClosed != 0 {
		return
	}
	p.sweepArmed = true
	next := p.sweepEvery()
	if p.cfg.CheckInterval > 0 {
		now := p.nowLocked()
		if p.nextCheck <= now { // the first sweep, or the sweeps had stopped
			p.nextCheck = later(now, p.cfg.CheckInterval)
		}
		next = min(next, time.Duration(max(1, p.nextCheck-now)))
	}
	p.setTimerLocked(&p.sweepTimer, next, p.sweepLocked)
}

// sweepLocked ends idle resources that are too old or idle for too long, refills,
// and starts a round of checks when one is due.
func (p *Pool[T]) sweepLocked() {
	p.sweepArmed = false
	if p.mode&modeClosed != 0 {
		return
	}
	now := p.nowLocked()
	p.retireIdleLocked(now)
	p.balanceLocked()
	p.checkIfDueLocked(now)
	if p.total > 0 || p.min > 0 || p.minIdle > 0 {
		p.armSweepLocked()
	}
}

// retireIdleLocked ends the idle resources that are too old or idle for too long.
func (p *Pool[T]) retireIdleLocked(now int64) {
	live := p.total - p.destroying
	for i := 0; i < p.idle.n; {
		r := p.idle.at(i)
		why := fit
		switch {
		case now >= r.expires:
			why = ReasonLifetime
		case p.cfg.MaxIdleTime > 0 && now-r.idleSince >= int64(p.cfg.MaxIdleTime) &&
			live > p.min && p.idle.n > p.minIdle && !r.preserved:
			why = ReasonIdleTime
		}
		if why == fit {
			i++
			continue
		}
		p.idle.removeAt(i)
		p.retireLocked(r, why)
		live--
	}
}

// checkIfDueLocked starts a round of checks when one is due.
func (p *Pool[T]) checkIfDueLocked(now int64) {
	if p.cfg.CheckInterval <= 0 || now < p.nextCheck {
		return
	}
	p.nextCheck = later(now, p.cfg.CheckInterval)
	leaveOut := p.cfg.CheckAfterUse && p.acquires == p.checkedAt
	p.checkedAt = p.acquires
	if !leaveOut && p.cfg.Check != nil && !p.checkRunning && p.idle.n > 0 {
		p.checkRunning = true
		go p.checkIdle(p.idleNowLocked())
	}
}

// suspect is an idle resource to be checked, unless it has been lent since.
type suspect[T any] struct {
	r     *resource[T]
	order uint64
}

func (p *Pool[T]) idleNowLocked() []suspect[T] {
	all := make([]suspect[T], 0, p.idle.n)
	for i := range p.idle.n {
		if r := p.idle.at(i); !r.preserved {
			all = append(all, suspect[T]{r, r.idleOrder})
		}
	}
	return all
}

// checkIdle checks one resource after the other. A resource that is being checked counts as
// borrowed for acquirers.
func (p *Pool[T]) checkIdle(all []suspect[T]) {
	defer func() { // even if OnError ends the goroutine
		p.mu.Lock()
		p.checkRunning = false
		p.mu.Unlock()
	}()
	for _, s := range all {
		if !p.takeForCheck(s) {
			continue
		}
		err := p.check(s.r)
		p.mu.Lock()
		p.checking--
		if err != nil {
			why := ReasonCheckFailed
			if p.mode&modeClosed != 0 {
				why = ReasonClosed
			}
			p.retireLocked(s.r, why)
			if why == ReasonClosed {
				err = nil // Close has ended the context of Check
			}
		} else {
			p.putCheckedLocked(s.r)
		}
		p.balanceLocked()
		p.mu.Unlock()
		p.report("Check", err)
	}
}

// takeForCheck takes s out of the idle list if s has been there all the time. While acquirers wait,
// nothing is idle: so a check can delay only acquirers that come after it has begun.
func (p *Pool[T]) takeForCheck(s suspect[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.idle.find(s.r)
	if i < 0 || s.r.idleOrder != s.order || p.mode&(modeClosed|modeInactive) != 0 {
		return false
	}
	p.idle.removeAt(i)
	p.checking++
	return true
}

// putCheckedLocked puts r back where it was, or gives it to a waiter that has come
// meanwhile.
func (p *Pool[T]) putCheckedLocked(r *resource[T]) {
	if p.queue.empty() && p.unfitLocked(r, p.clock.Coarse()) == fit {
		p.idle.restore(r)
		return
	}
	if w := p.putLocked(r); w != nil {
		w.wake()
	}
}

// check runs Check on r. When the time of Check is over, check still waits for Check to return, but
// not for ever, so that Destroy does not run beside Check.
func (p *Pool[T]) check(r *resource[T]) error {
	ctx, cancel := p.bounded(p.stop, p.cfg.CheckTimeout)
	defer cancel()
	result := make(chan error, 1)
	go detached("Check",
		func() error { return p.cfg.Check(ctx, r.value) },
		func(err error) { result <- err })
	if p.cfg.CheckTimeout == 0 {
		return <-result
	}
	grace := time.NewTimer(2 * p.cfg.CheckTimeout)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-grace.C:
		return context.DeadlineExceeded
	}
}

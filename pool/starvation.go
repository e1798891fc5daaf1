package pool

import "time"

// One timer calls Starving for the whole queue. An acquirer that enters the queue arms the timer,
// unless the timer is armed. A timer that finds the queue empty is not armed again. A closed pool's
// queue stays empty.
//
// While Starving runs, armed stays true. The timer may still fire: a waiter that comes back into the
// queue sets the timer again, maybe while starveLocked waits for the lock. Then starveLocked finds that
// running is true, and returns. When Starving has returned, endStarving arms the timer.

// starvation says when Starving is called. The pool's lock protects it.
type starvation struct {
	timer   *time.Timer
	armed   bool  // the timer is set or Starving runs
	running bool  // Starving runs
	next    int64 // pool time before which Starving is not called again
}

func (p *Pool[T]) armStarvingLocked(d time.Duration) {
	p.starvation.armed = true
	p.setTimerLocked(&p.starvation.timer, d, p.starveLocked)
}

// armStarvingAgainLocked arms the timer for a waiter that came back into the queue, maybe as the first.
// The waiter's earlier wait counts.
func (p *Pool[T]) armStarvingAgainLocked() {
	if p.cfg.StarveAfter > 0 {
		p.armStarvingLocked(p.untilStarvingLocked(p.queue.oldest()))
	}
}

// untilStarvingLocked is the time until Starving is due, if oldest stays the first in the queue.
func (p *Pool[T]) untilStarvingLocked(oldest *waiter[T]) time.Duration {
	now := p.nowLocked()
	start := oldest.start.Load()
	if start == 0 {
		// oldest has entered the queue, but its acquirer has not looked at the clock yet.
		start = now
	}
	return time.Duration(max(later(start, p.cfg.StarveAfter), p.starvation.next) - now)
}

// starveLocked starts a call of Starving if a call is due. If not, it sets the timer for the next
// call.
func (p *Pool[T]) starveLocked() {
	s := &p.starvation
	if s.running {
		return
	}
	s.armed = false
	oldest := p.queue.oldest()
	if oldest == nil {
		return
	}
	if d := p.untilStarvingLocked(oldest); d > 0 {
		p.armStarvingLocked(d)
		return
	}
	s.armed, s.running = true, true
	s.next = later(p.nowLocked(), p.cfg.StarveAfter)
	waiting := p.queue.n
	go detached("Starving",
		func() error { p.cfg.Starving(waiting); return nil },
		func(err error) {
			p.endStarving()
			p.report("Starving", err)
		})
}

func (p *Pool[T]) endStarving() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.starvation
	s.armed, s.running = false, false
	if oldest := p.queue.oldest(); oldest != nil {
		p.armStarvingLocked(p.untilStarvingLocked(oldest))
	}
}

package pool

import "time"

// One timer calls Starving, for the same reasons as the one timer of expiry.go. An acquirer
// that queues arms it, unless it is armed. It is not armed again when it finds the queue
// empty. A closed pool's queue stays empty.
//
// While Starving runs, armed stays set. The timer may still fire: a waiter that comes back
// into the queue resets it, maybe when it has fired already and waits for the lock. It then
// finds running set and returns. When Starving has returned, endStarving arms the timer.

// starvation says when Starving is called. The pool's lock protects it.
type starvation struct {
	timer   *time.Timer
	armed   bool  // the timer is set or Starving runs
	running bool  // Starving runs
	next    int64 // pool time before which it is not called again
}

func (p *Pool[T]) armStarvingLocked(d time.Duration) {
	s := &p.starvation
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(d, p.starve)
	} else {
		s.timer.Reset(d)
	}
}

// armStarvingAgainLocked arms the timer for a waiter that came back into the queue, maybe
// as its head. The time that it has waited already counts.
func (p *Pool[T]) armStarvingAgainLocked() {
	if p.cfg.StarveAfter > 0 {
		p.armStarvingLocked(p.untilStarvingLocked(p.queue.head))
	}
}

// untilStarvingLocked is how long it is until Starving is due if head remains
// the head.
func (p *Pool[T]) untilStarvingLocked(head *waiter[T]) time.Duration {
	now := p.since()
	start := head.start.Load()
	if start == 0 {
		// It has entered the queue but not looked at the clock yet.
		start = now
	}
	return time.Duration(max(later(start, p.cfg.StarveAfter), p.starvation.next) - now)
}

// starve calls Starving if it is due.
func (p *Pool[T]) starve() {
	waiting := p.beginStarving()
	if waiting == 0 {
		return
	}
	detached("Starving",
		func() error { p.cfg.Starving(waiting); return nil },
		func(err error) {
			p.endStarving()
			p.report("Starving", err)
		})
}

// beginStarving gives the number of waiters if Starving is due. If not, it
// sets the timer for when it will be.
func (p *Pool[T]) beginStarving() (waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.starvation
	if s.running {
		return 0
	}
	s.armed = false
	head := p.queue.head
	if head == nil {
		return 0
	}
	if d := p.untilStarvingLocked(head); d > 0 {
		p.armStarvingLocked(d)
		return 0
	}
	s.armed, s.running = true, true
	s.next = later(p.since(), p.cfg.StarveAfter)
	return p.queue.n
}

func (p *Pool[T]) endStarving() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.starvation
	s.armed, s.running = false, false
	if head := p.queue.head; head != nil {
		p.armStarvingLocked(p.untilStarvingLocked(head))
	}
}

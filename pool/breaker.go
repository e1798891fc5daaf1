package pool

import (
	"fmt"
	"sync/atomic"
	"time"
)

// State is the state of a pool's circuit breaker.
type State uint8

const (
	// Active is the normal state.
	Active State = iota
	// Inactive refuses: every acquire fails at once with ErrUnavailable, waiting
	// acquirers get the same error, and nothing is created. Borrowed resources come
	// back as always.
	Inactive
	// Recovering lets one acquirer at a time through as a probe. The others are refused as in
	// Inactive.
	Recovering
)

var stateNames = [...]string{"active", "inactive", "recovering"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Strategy decides when the circuit breaker changes its state. Each method
// gets the present state and returns the next, or the same. If the state has changed before the
// answer comes, the answer is dropped.
//
// In Active, every create and every release is reported: Failure for a failed
// Create or BeforeRelease, Success for all others. A Discard is not reported: it concerns one
// resource only. In Recovering only the probe is reported: the first create, or the release of the
// one resource that is lent. In Inactive nothing is reported.
//
// The methods are called without a lock, from several goroutines at once. A method that panics does
// not change the state.
type Strategy interface {
	Success(now State) State
	Failure(now State, err error) State
	// Refused is called when an acquirer finds the breaker Inactive. inactive: the time since the
	// breaker became Inactive. If Refused returns Inactive, the acquirer gets ErrUnavailable.
	Refused(inactive time.Duration) State
}

// ConsecutiveFailures is the Strategy that deactivates after n failures
// without a success in between (n below 1 counts as 1), lets a probe through
// after the cool-down, activates when the probe succeeds, and waits for
// another cool-down when it fails. Two pools must not share such a Strategy.
func ConsecutiveFailures(n int, cooldown time.Duration) Strategy {
	return &consecutiveFailures{limit: int64(max(n, 1)), cooldown: cooldown}
}

type consecutiveFailures struct {
	limit    int64
	cooldown time.Duration
	failures atomic.Int64
}

func (s *consecutiveFailures) Success(State) State {
	if s.failures.Load() != 0 { // saves a write to the shared cache line
		s.failures.Store(0)
	}
	return Active
}

func (s *consecutiveFailures) Failure(now State, _ error) State {
	if s.failures.Add(1) >= s.limit || now == Recovering {
		return Inactive
	}
	return now
}

func (s *consecutiveFailures) Refused(inactive time.Duration) State {
	if inactive >= s.cooldown {
		return Recovering
	}
	return Inactive
}

// State tells the state of the circuit breaker.
func (p *Pool[T]) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stateLocked()
}

// Activate closes the circuit: everything works.
func (p *Pool[T]) Activate() { p.setState(Active) }

// Deactivate opens the circuit; see Inactive.
func (p *Pool[T]) Deactivate() { p.setState(Inactive) }

// Recover lets one probe through; see Recovering. Without a Strategy, a probe
// that succeeds activates the pool, and a probe that fails deactivates it. Acquirers that
// are waiting keep waiting. Each one probes when its turn comes.
func (p *Pool[T]) Recover() { p.setState(Recovering) }

func (p *Pool[T]) setState(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setStateLocked(s)
	p.balanceLocked()
}

func (p *Pool[T]) stateLocked() State {
	switch {
	case p.mode&modeInactive != 0:
		return Inactive
	case p.mode&modeRecovering != 0:
		return Recovering
	}
	return Active
}

// setStateLocked changes the state. Its caller must call balanceLocked next.
func (p *Pool[T]) setStateLocked(s State) {
	if s == p.stateLocked() {
		return
	}
	p.mode &^= modeInactive | modeRecovering
	p.probe = 0
	p.count.transitions++
	switch s {
	case Recovering:
		p.mode |= modeRecovering
	case Inactive:
		p.mode |= modeInactive
		p.inactiveSince = p.nowLocked()
		p.failAllLocked(func(w *waiter[T]) error {
			p.count.unavailable++
			return p.acquireErrorLocked(ErrUnavailable, w.start.Load())
		})
	}
}

// consult asks the Strategy, while the breaker is Inactive, whether it is to stay so. The caller has the lock;
// consult lets go of it meanwhile.
func (p *Pool[T]) consult() {
	if p.mode&modeInactive == 0 || p.mode&modeClosed != 0 || p.cfg.Strategy == nil {
		return
	}
	inactive := p.sinceStart(p.inactiveSince)
	p.mu.Unlock()
	v := p.ask(Inactive, func() State { return p.cfg.Strategy.Refused(inactive) })
	p.mu.Lock()
	p.applyLocked(v)
}

// admitLocked admits attempt t, or returns the error that refuses t. A new attempt gets its number.
func (p *Pool[T]) admitLocked(t *ticket) error {
	again := t.seq != 0
	if !again {
		p.seq++
		t.seq = p.seq
	}
	switch {
	case p.mode&modeClosed != 0:
		if again {
			return p.acquireErrorLocked(ErrClosed, t.start)
		}
		return ErrClosed
	case p.mode&modeInactive != 0:
	case p.mode&modeRecovering == 0:
		return nil
	case p.probe == 0 && p.queue.empty():
		p.probe = t.seq
		return nil
	case again:
		return nil // t goes back to the queue and probes in its turn
	}
	p.count.unavailable++
	return p.acquireErrorLocked(ErrUnavailable, t.start)
}

// mayGrantLocked reports whether the breaker lets w, the first in the queue,
// have a resource.
func (p *Pool[T]) mayGrantLocked(w *waiter[T]) bool {
	if p.mode&modeRecovering == 0 {
		return true
	}
	if p.probe == 0 {
		p.probe = w.seq
	}
	return p.probe == w.seq
}

// endProbeLocked makes r an ordinary resource. If r was the probe, there is no probe now.
func (p *Pool[T]) endProbeLocked(r *resource[T]) {
	if r.probe != 0 && r.probe == p.probe {
		p.probe = 0
	}
	r.probe = 0
}

// verdict is a change from one state to the next. given is false: there is no change.
type verdict struct {
	given      bool
	from, next State
}

// applyLocked makes the change v if the state is still v.from. Its caller must call balanceLocked next.
func (p *Pool[T]) applyLocked(v verdict) {
	if v.given && p.stateLocked() == v.from {
		p.setStateLocked(v.next)
	}
}

// ask calls the Strategy. If the Strategy panics or returns no valid state, there is no change.
func (p *Pool[T]) ask(now State, question func() State) verdict {
	v := verdict{from: now}
	err := call("Strategy", func() error {
		v.next = question()
		return nil
	}, func(error) {})
	v.given = err == nil && v.next <= Recovering
	return v
}

// judge reports a success (err is nil) or a failure to the Strategy. Without a Strategy, the outcome of
// a probe decides.
func (p *Pool[T]) judge(now State, err error) verdict {
	switch {
	case now == Inactive:
		return verdict{}
	case p.cfg.Strategy != nil && err == nil:
		return p.ask(now, func() State { return p.cfg.Strategy.Success(now) })
	case p.cfg.Strategy != nil:
		return p.ask(now, func() State { return p.cfg.Strategy.Failure(now, err) })
	case now == Active:
		return verdict{}
	case err == nil:
		return verdict{given: true, from: now, next: Active}
	}
	return verdict{given: true, from: now, next: Inactive}
}

// judgeCreate judges the outcome of a create.
func (p *Pool[T]) judgeCreate(err error) verdict {
	p.mu.Lock()
	now, shut := p.stateLocked(), p.mode&modeClosed != 0
	p.mu.Unlock()
	if shut {
		return verdict{}
	}
	return p.judge(now, err)
}

// judgeRelease judges the release of r.
func (p *Pool[T]) judgeRelease(r *resource[T], err error) verdict {
	if p.cfg.Strategy == nil && r.probe == 0 {
		return verdict{}
	}
	p.mu.Lock()
	now := p.stateLocked()
	probe := r.probe != 0 && r.probe == p.probe
	p.endProbeLocked(r)
	p.mu.Unlock()
	if now == Recovering && !probe {
		return verdict{}
	}
	return p.judge(now, err)
}

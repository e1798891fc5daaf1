package bubble

import (
	"sync"
	"sync/atomic"
	"time"
)

// Tick is the resolution of coarse time.
const Tick = 10 * time.Millisecond

// CoarseClock is a Clock that also tells the time coarsely, for a tenth of the price. The coarse time
// stands still for a Tick at most. A timer updates it. The timer stops when nobody has asked for the
// coarse time during a Tick. Start makes a CoarseClock ready, and starts no timer.
type CoarseClock struct {
	// Started, if set, is called when the timer begins to run. It must be quick.
	Started func()

	clock  Clock
	coarse atomic.Int64
	asked  atomic.Bool // since the last tick

	mu      sync.Mutex // protects following fields, and moves clock
	running bool
	timer   *time.Timer // of the clock's World; nil: there is none yet
}

// Start begins the clock's time; see Clock.Start.
func (c *CoarseClock) Start() { c.clock.Start() }

// World is the World in which the clock is. Fine and Coarse follow their caller to another World.
func (c *CoarseClock) World() *World { return c.clock.World() }

// Time is a time of this clock as a time.Time.
func (c *CoarseClock) Time(at int64) time.Time { return c.clock.Time(at) }

// Of returns t in nanoseconds of this clock.
func (c *CoarseClock) Of(t time.Time) int64 { return c.clock.Of(t) }

// Fine is the exact time.
func (c *CoarseClock) Fine() int64 {
	now := c.clock.Now()
	if c.World().Guest() || uint64(now-c.coarse.Load()) > uint64(Tick) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fineLocked()
	}
	return now
}

// fineLocked is Fine. It sets the coarse time: after a move the time must go on from a time that is no
// more than a Tick before all times that Fine has returned.
func (c *CoarseClock) fineLocked() int64 {
	last := c.coarse.Load()
	now := c.clock.Now()
	if (c.World().Guest() || Leapt(now, last)) && c.clock.Follow(last+int64(Tick)) {
		c.running, c.timer = false, nil
		c.asked.Store(false) // whoever asked relied on a tick that does not come here
		now = c.clock.Now()
	}
	c.coarse.Store(max(now, last))
	return now
}

// Glance is Fine for who only looks: it does not follow its caller to another World, where somebody
// may wait by the clock's timers. There it is the coarse time.
func (c *CoarseClock) Glance() int64 {
	now, last := c.clock.Now(), c.coarse.Load()
	if Leapt(now, last) {
		return last
	}
	return now
}

// Coarse is the coarse time: it is right, or early by a Tick at most.
func (c *CoarseClock) Coarse() int64 {
	if !c.asked.Load() {
		c.ask()
	}
	return c.coarse.Load()
}

// ask is the first Coarse after a tick.
func (c *CoarseClock) ask() {
	if c.start() && c.Started != nil {
		c.Started()
	}
}

// start has the timer run, and reports whether it has not run before.
func (c *CoarseClock) start() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fineLocked()
	world := c.World()
	if world.Guest() {
		return false // no timer runs here, and the next call of Coarse asks again
	}
	c.asked.Store(true)
	switch {
	case c.running:
		return false
	case c.timer == nil:
		c.timer = time.AfterFunc(Tick, func() { c.tick(world) })
	default:
		c.timer.Reset(Tick)
	}
	c.running = true
	return true
}

// tick updates the coarse time while somebody asks for it.
func (c *CoarseClock) tick(world *World) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.World() != world {
		return
	}
	c.coarse.Store(c.clock.Now())
	if c.running = c.asked.Swap(false); c.running {
		c.timer.Reset(Tick)
	}
}

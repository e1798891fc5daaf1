// Package usage measures for how long connections are held, and for how much of that time
// nothing runs on them. It costs some nanoseconds for each checkout and each operation.
package usage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// Tick is the resolution of a Clock's coarse time.
const Tick = 10 * time.Millisecond

// Clock tells the time in nanoseconds since it was made, never 0: exactly, or coarsely for
// a tenth of the price. The coarse time stands still for a Tick at most. A timer updates it. The
// timer stops when nobody has asked for the time during a Tick.
type Clock struct {
	// Started, if set, is called when the timer begins to run. It must be quick.
	Started func()

	clock  bubble.Clock
	coarse atomic.Int64
	asked  atomic.Bool // since the last tick

	mu      sync.Mutex // protects following fields, and moves clock
	running bool
	timer   *time.Timer
}

// NewClock returns a clock. It starts nothing.
func NewClock() *Clock {
	c := &Clock{}
	c.clock.Start()
	return c
}

// Fine is the exact time.
func (c *Clock) Fine() int64 {
	now := c.clock.Now()
	if bubble.Leapt(now, c.coarse.Load()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fineLocked()
	}
	return now
}

// fineLocked is Fine. A clock that is a guest in a bubble of testing/synctest does not tick.
func (c *Clock) fineLocked() int64 {
	last := c.coarse.Load()
	now := c.clock.Now()
	if bubble.Leapt(now, last) && c.clock.Follow(last) {
		c.running, c.timer = false, nil
		c.asked.Store(false) // whoever asked relied on a tick that does not come here
		now = c.clock.Now()
	}
	return now
}

// Time is a time of this clock as a time.Time.
func (c *Clock) Time(at int64) time.Time { return c.clock.Time(at) }

// Coarse is the coarse time: it is right, or early by a Tick at most.
func (c *Clock) Coarse() int64 {
	if !c.asked.Load() {
		c.ask()
	}
	return c.coarse.Load()
}

// ask is the first Coarse after a tick.
func (c *Clock) ask() {
	if c.start() && c.Started != nil {
		c.Started()
	}
}

// start has the timer run, and reports whether it has not run before.
func (c *Clock) start() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.fineLocked()
	if c.running {
		c.asked.Store(true)
		return false
	}
	c.coarse.Store(now)
	world := c.clock.World()
	if world.Guest() {
		return false // the next call of Coarse asks again
	}
	c.asked.Store(true)
	c.running = true
	c.timer = time.AfterFunc(Tick, func() { c.tick(world) })
	return true
}

// tick updates the coarse time while somebody asks for it.
func (c *Clock) tick(world *bubble.World) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock.World() != world {
		return
	}
	c.coarse.Store(c.clock.Now())
	if c.running = c.asked.Swap(false); c.running {
		c.timer.Reset(Tick)
	}
}

// Package usage measures for how long connections are held, and for how much of that time
// nothing runs on them. It costs some nanoseconds for each checkout and each operation.
package usage

import (
	"sync"
	"sync/atomic"
	"time"
)

// Tick is the resolution of a Clock's coarse time.
const Tick = 10 * time.Millisecond

// Clock tells the time in nanoseconds since it was made, never 0: exactly, or coarsely for
// a tenth of the price. The coarse time stands still, at most, for a Tick. It is updated by
// a timer, which stops when nobody has asked for a Tick.
type Clock struct {
	base   time.Time
	coarse atomic.Int64
	asked  atomic.Bool // since the last tick

	mu      sync.Mutex // protects following fields
	running bool
	timer   *time.Timer
}

// NewClock returns a clock. It starts nothing.
func NewClock() *Clock { return &Clock{base: time.Now()} }

// Fine is the exact time.
func (c *Clock) Fine() int64 { return int64(time.Since(c.base)) + 1 }

// Time is a time of this clock as a time.Time.
func (c *Clock) Time(at int64) time.Time { return c.base.Add(time.Duration(at)) }

// Coarse is the coarse time: it is right, or early by a Tick at most.
func (c *Clock) Coarse() int64 {
	if !c.asked.Load() {
		c.ask()
	}
	return c.coarse.Load()
}

// ask is the first Coarse after a tick.
func (c *Clock) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.Store(true)
	if c.running {
		return
	}
	c.running = true
	c.coarse.Store(c.Fine())
	if c.timer == nil {
		c.timer = time.AfterFunc(Tick, c.tick)
	} else {
		c.timer.Reset(Tick)
	}
}

// tick updates the coarse time while somebody asks for it.
func (c *Clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coarse.Store(c.Fine())
	if c.running = c.asked.Swap(false); c.running {
		c.timer.Reset(Tick)
	}
}

// Package bubble keeps time in a program whose tests run in bubbles of testing/synctest. Each
// bubble has a clock of its own. A channel or a timer that was made in a bubble ends the process
// when it is used in another bubble, or outside.
package bubble

import (
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/goroutine"
)

// Name is the bubble in which the caller runs; empty: none. now is the present result of time.Now:
// it has no monotonic reading in a bubble (runtime/time.go), and has one outside. So a program
// without bubbles pays next to nothing.
func Name(now time.Time) string {
	if now != now.Round(0) {
		return ""
	}
	return goroutine.Bubble()
}

// leap is more than any clock can advance between two readings, and less than the difference
// between the clock of a bubble, which begins in the year 2000, and the clock outside.
const leap = 10 * 365 * 24 * time.Hour

// Clock is time in nanoseconds since the Clock was made, and never 0. When its readers have moved
// to another bubble, or out of a bubble, and have called Follow, the time goes on from its last
// value. Start makes a Clock ready. A Clock must not be copied.
type Clock struct {
	base  time.Time
	shift atomic.Int64 // added to the clock's time, so that the time goes on after a move
	world atomic.Pointer[World]
	home  string
}

// World is a bubble or, outside, no bubble. Each move makes another World.
type World struct {
	name  string
	guest bool
}

// Start begins the clock's time. The bubble in which Start is called, or the outside, is the
// clock's home.
func (c *Clock) Start() {
	c.base = time.Now()
	c.home = Name(c.base)
	c.shift.Store(1)
	c.world.Store(&World{name: c.home})
}

// Now is the time, if the caller is in the World of the clock.
func (c *Clock) Now() int64 { return int64(time.Since(c.base)) + c.shift.Load() }

// Time is a time of this clock as a time.Time.
func (c *Clock) Time(at int64) time.Time { return c.base.Add(time.Duration(at - c.shift.Load())) }

// Of returns t in nanoseconds of this clock.
func (c *Clock) Of(t time.Time) int64 { return int64(t.Sub(c.base)) + c.shift.Load() }

// World is the World in which the clock is.
func (c *Clock) World() *World { return c.world.Load() }

// Guest reports whether the clock is away from home. There its owner keeps no timer: a bubble's
// timers end with the bubble, and nobody reports that.
func (w *World) Guest() bool { return w.guest }

// Leapt reports whether the caller may be in another World than the clock. now is the present
// result of Now, last an earlier one.
func Leapt(now, last int64) bool { return now < last || now-last > int64(leap) }

// Follow moves the clock to the caller's World, where its time goes on from last. moved reports
// whether the clock was in another World. Only one call of Follow may run at a time.
func (c *Clock) Follow(last int64) (moved bool) {
	now := time.Now()
	name := Name(now)
	if name == c.world.Load().name {
		return false
	}
	c.shift.Store(last + 1 - int64(now.Sub(c.base)))
	c.world.Store(&World{name: name, guest: name != c.home})
	return true
}

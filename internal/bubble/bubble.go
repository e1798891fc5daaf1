// Package bubble keeps time in a program whose tests run in bubbles of testing/synctest. Each
// bubble has a clock of its own, and a channel or a timer that was made in one ends the process
// when it is used in another, or outside.
package bubble

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"time"
)

// Name is the bubble that the caller runs in; empty: none. now is what time.Now has just told:
// without a monotonic reading in a bubble (runtime/time.go), with one outside. So a program that
// has no bubbles pays next to nothing.
func Name(now time.Time) string {
	if now != now.Round(0) {
		return ""
	}
	// "goroutine 21 [running, synctest bubble 1]:"
	text := make([]byte, 128)
	text = text[:runtime.Stack(text, false)]
	_, after, found := bytes.Cut(text, []byte("synctest bubble "))
	if !found {
		return ""
	}
	name, _, _ := bytes.Cut(after, []byte("]"))
	return string(name)
}

// leap is more than any clock can go forward between two readings of it, and less than what lies
// between the clock of a bubble, which begins in the year 2000, and that outside.
const leap = 10 * 365 * 24 * time.Hour

// Clock is time in nanoseconds since it was made, and never 0. It goes on where it was when its
// readers have moved to another bubble, or out of one, and have called Follow. Start makes it
// ready; it must not be copied.
type Clock struct {
	base  time.Time
	shift atomic.Int64 // what is added, so that the time goes on
	world atomic.Pointer[World]
	home  string
}

// World is a bubble or, outside, none. It is another one at each move.
type World struct {
	name  string
	guest bool
}

// Start begins the clock's time. Where it is called the clock is at home.
func (c *Clock) Start() {
	c.base = time.Now()
	c.home = Name(c.base)
	c.shift.Store(1)
	c.world.Store(&World{name: c.home})
}

// Now is the time, if the caller is where the clock is.
func (c *Clock) Now() int64 { return int64(time.Since(c.base)) + c.shift.Load() }

// Time is a time of this clock as a time.Time.
func (c *Clock) Time(at int64) time.Time { return c.base.Add(time.Duration(at - c.shift.Load())) }

// Of is t as a time of this clock.
func (c *Clock) Of(t time.Time) int64 { return int64(t.Sub(c.base)) + c.shift.Load() }

// World is where the clock is.
func (c *Clock) World() *World { return c.world.Load() }

// Guest reports whether the clock is where it was not made: there its owner keeps no timer, for
// a bubble's timers are gone with it, and nobody tells.
func (w *World) Guest() bool { return w.guest }

// Leapt reports whether the caller may be elsewhere than the clock: now is what Now has just
// told, last what it has told before.
func Leapt(now, last int64) bool { return now < last || now-last > int64(leap) }

// Follow takes the clock to where the caller is, and reports whether it was elsewhere. There
// its time goes on from last. The caller sees to it that Follow is called by one at a time.
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

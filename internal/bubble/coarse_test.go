package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheCoarseTimeIsEarlyByATickAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c CoarseClock
		c.Start()
		for _, pause := range []time.Duration{0, time.Millisecond, Tick - 1, Tick, 3 * time.Millisecond, 10 * Tick, time.Hour, time.Millisecond} {
			time.Sleep(pause)
			late := c.Fine() - c.Coarse()
			require.GreaterOrEqual(t, late, int64(0))
			require.LessOrEqual(t, late, int64(Tick))
		}
		time.Sleep(2 * Tick)
		synctest.Wait()
		require.False(t, c.running, "nobody has asked: the timer has stopped")
	})
}

// The time goes on through bubbles and outside, also if nobody has asked for it for long before a move.
func TestTheCoarseClockGoesOnInBubblesAndOutside(t *testing.T) {
	var c CoarseClock
	c.Start()
	last := c.Fine()
	follows := func() {
		for _, read := range []func() int64{c.Coarse, c.Fine, c.Fine, c.Coarse} {
			now := read()
			require.GreaterOrEqual(t, now+int64(Tick), last)
			require.Less(t, now-last, int64(time.Hour))
			last = max(last, now)
		}
	}
	follows()
	for range 2 {
		for range 2 {
			synctest.Test(t, func(*testing.T) {
				follows()
				require.True(t, c.World().Guest())
				time.Sleep(2 * time.Hour)
				last += int64(2 * time.Hour)
				follows()
			})
		}
		follows()
		require.False(t, c.World().Guest())
		time.Sleep(3 * Tick)
		last = max(last, c.Fine())
	}
}

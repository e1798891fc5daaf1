package inspect

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// waits is a histogram with n waits in the bucket up to bound.
func waits(h pooldriver.Histogram, n int, bound time.Duration) pooldriver.Histogram {
	for i, b := range pooldriver.HistogramBounds() {
		if b == bound {
			h.Buckets[i] += uint64(n)
			h.Count += uint64(n)
			return h
		}
	}
	h.Buckets[len(h.Buckets)-1] += uint64(n)
	h.Count += uint64(n)
	return h
}

func TestQuantileIsABucketsBound(t *testing.T) {
	var h pooldriver.Histogram
	bound, over := quantile(h, 0.99)
	require.Zero(t, bound)
	require.False(t, over)
	h = waits(waits(h, 98, time.Millisecond), 2, time.Second)
	bound, _ = quantile(h, 0.5)
	require.Equal(t, time.Millisecond, bound)
	bound, over = quantile(h, 0.99)
	require.Equal(t, time.Second, bound)
	require.False(t, over)
	bound, over = quantile(waits(h, 100, -1), 0.99)
	bounds := pooldriver.HistogramBounds()
	require.Equal(t, bounds[len(bounds)-1], bound)
	require.True(t, over)
}

func TestRecentIsTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watched
		h := waits(pooldriver.Histogram{}, 100, time.Second)
		look := func() Recent { return w.sinceLocked(moment{at: time.Now(), wait: h}) }
		require.Equal(t, Recent{Acquired: 100, WaitP50: time.Second, WaitP99: time.Second}, look(), "of all time")
		time.Sleep(10 * time.Second)
		h = waits(h, 7, time.Millisecond)
		require.Equal(t, Recent{For: 10 * time.Second, Acquired: 7, WaitP50: time.Millisecond, WaitP99: time.Millisecond}, look())
		for range 300 {
			time.Sleep(time.Second / 4)
			look()
		}
		r := look()
		require.Zero(t, r.Acquired, "the seven were before the last minute")
		require.InDelta(t, historyLength, r.For, float64(2*historyStep))
		require.LessOrEqual(t, len(w.history), 62, "several viewers cost no more memory than one")
	})
}

// TestALevelStaysForAWhile: what changes with every look tells nothing.
func TestALevelStaysForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watched
		changes, level := 0, ""
		judge := func(v Verdict) Verdict {
			v = w.verdictLocked(time.Now(), v)
			if v.Level != level {
				changes++
				level = v.Level
			}
			return v
		}
		require.Equal(t, Verdict{"calm", "All is well."}, judge(Verdict{"calm", "All is well."}))
		for range 30 { // a minute in which it is busy now and then
			require.Equal(t, "busy", judge(Verdict{"busy", "Some wait."}).Level)
			time.Sleep(time.Second)
			require.Equal(t, Verdict{"busy", "1s ago: Some wait. Now: All is well."}, judge(Verdict{"calm", "All is well."}))
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, changes)
		require.Equal(t, "bad", judge(Verdict{"bad", "All fail."}).Level, "what gets worse is said at once")
		time.Sleep(levelLasts)
		require.Equal(t, Verdict{"calm", "All is well."}, judge(Verdict{"calm", "All is well."}))
	})
}

func TestTheWindowSaysForHowLongStatementsRunAndNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watched{history: []moment{{at: time.Now()}}}
		p := Pool{Holders: []pooldriver.Holder{{Conn: 1, Running: true, Statements: 4}, {Conn: 2, Statements: 1}}}
		require.Equal(t, Window{Running: map[uint64]time.Duration{1: 0}, Failed: map[pooldriver.AcquireFailure]uint64{}}, w.windowLocked(time.Now(), &p))
		time.Sleep(2 * time.Second)
		p.Stats.AcquireFailures = map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 3}
		now := w.windowLocked(time.Now(), &p)
		require.Equal(t, 2*time.Second, now.Still)
		require.Equal(t, 2*time.Second, now.Running[1])
		require.Equal(t, map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 3}, now.Failed)
		p.Holders[0].Statements = 5
		now = w.windowLocked(time.Now(), &p)
		require.Zero(t, now.Still)
		require.Zero(t, now.Running[1], "another one")
	})
}

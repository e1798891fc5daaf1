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
		look := func() Recent { return w.sinceLocked(moment{time.Now(), h}) }
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

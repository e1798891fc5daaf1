package inspect

import (
	"testing"
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

// minute is a history of n seconds, whose last moment is now. change makes the moments.
func minute(n int, change func(second int, m *pooldriver.Moment)) []pooldriver.Moment {
	all := make([]pooldriver.Moment, n+1)
	for i := range all {
		if i > 0 {
			all[i] = all[i-1]
		}
		all[i].At = time.Unix(int64(i), 0)
		all[i].AcquireFailures = map[pooldriver.AcquireFailure]uint64{}
		change(i, &all[i])
	}
	return all
}

func TestTheWindowIsTheLastTenSeconds(t *testing.T) {
	all := minute(30, func(second int, m *pooldriver.Moment) {
		m.InUse = 4
		m.AcquireFailures[pooldriver.AcquireTimeout] = uint64(second)
		if second%2 == 0 {
			m.DialErrors++
			m.Moves += 4 // two connections came back, and were lent again
		}
		if m.Wait = waits(m.Wait, 1, time.Second); second > 20 {
			m.Wait = waits(m.Wait, 300, time.Millisecond)
		}
	})
	w := windowOf(all, pooldriver.Histogram{})
	require.Equal(t, map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 10}, w.Failed)
	require.EqualValues(t, 5, w.DialErrors)
	require.Equal(t, time.Millisecond, w.WaitP99, "3010 statements have waited, 10 of them for long")
	require.Equal(t, window, w.Known)
	require.Equal(t, 4*time.Second, w.MeanHold, "four were in use, and one came back in a second")

	w = windowOf(all[len(all)-1:], pooldriver.Histogram{})
	require.Zero(t, w.Known, "the present alone tells nothing")
	require.Zero(t, w.MeanHold)
	require.Empty(t, w.Failed)
	w = windowOf(minute(2, func(second int, m *pooldriver.Moment) {
		if second > 0 {
			m.Wait = waits(m.Wait, 1, time.Second)
		}
	}), pooldriver.Histogram{})
	require.Zero(t, w.WaitP99, "two statements have waited for their dials")

	r := recentOf(all, pooldriver.Histogram{})
	require.Equal(t, 30*time.Second, r.For)
	require.EqualValues(t, 30+10*300, r.Acquired)
	require.Equal(t, time.Millisecond, r.WaitP50)

	lines := linesOf(all)
	require.Len(t, lines, len(all))
	require.Equal(t, Point{At: time.Unix(5, 0), InUse: 4, WaitP99: time.Second, Failed: 1}, lines[5])
}

func TestPipelinedQueriesOfTheLastMinuteAreCounted(t *testing.T) {
	all := minute(60, func(second int, m *pooldriver.Moment) {
		m.Pipelined += 12
		m.Wait = waits(m.Wait, 100, time.Millisecond)
	})
	r := recentOf(all, pooldriver.Histogram{})
	require.Equal(t, []uint64{60 * 12, 60 * 100}, []uint64{r.Pipelined, r.Acquired})
	r = recentOf(all[len(all)-1:], pooldriver.Histogram{})
	require.Equal(t, []uint64{61 * 12, 61 * 100}, []uint64{r.Pipelined, r.Acquired}, "of all time")
}

// TestAnEarlierVerdictIsShownBelow: the present one changes at once, and what was worse is not
// forgotten at once.
func TestAnEarlierVerdictIsShownBelow(t *testing.T) {
	var w memory
	now := time.Unix(0, 0)
	calm, busy, bad := Verdict{Level: "calm", Sentence: "All is well."}, Verdict{Level: "busy", Sentence: "Some wait."}, Verdict{Level: "bad", Sentence: "All fail."}
	require.Nil(t, w.earlier(now, calm))
	require.Nil(t, w.earlier(now, bad), "what gets worse is said at once")
	require.Equal(t, &Earlier{bad, 7 * time.Second}, w.earlier(now.Add(7*time.Second), busy))
	require.Equal(t, &Earlier{bad, 29 * time.Second}, w.earlier(now.Add(29*time.Second), calm))
	require.Nil(t, w.earlier(now.Add(30*time.Second), calm))
}

func TestLabelsAreAddedUp(t *testing.T) {
	now := time.Unix(100, 0)
	holder := func(label, text string, seconds int64, running bool) pooldriver.Holder {
		return pooldriver.Holder{Label: label, Statement: text, Since: time.Unix(100-seconds, 0), Running: running, IdlePinned: time.Second}
	}
	require.Equal(t, []LabelUse{
		{Label: "GET /report", Holds: 3, Running: 2, Waiting: 1, LongestHold: 5 * time.Second, LongestWait: 2 * time.Second, Held: 11 * time.Second, Idle: 3 * time.Second, Statement: "SELECT sales"},
		{Label: "", Holds: 1, LongestHold: time.Second, Held: time.Second, Idle: time.Second, Statement: "a"},
		{Label: "GET /cart", Waiting: 2, LongestWait: 4 * time.Second},
	}, labelsOf(Pool{
		At:      now,
		Holders: []pooldriver.Holder{holder("", "a", 1, false), holder("GET /report", "SELECT user", 5, true), holder("GET /report", "SELECT sales", 3, true), holder("GET /report", "SELECT sales", 3, false)},
		Waiters: []pooldriver.Waiter{{Label: "GET /cart", Since: time.Unix(96, 0)}, {Label: "GET /report", Since: time.Unix(98, 0)}, {Label: "GET /cart", Since: time.Unix(99, 0)}, {Label: "GET /stock", Follows: true}},
	}), "who follows does not wait")
}

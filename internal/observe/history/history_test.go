package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(second int) time.Time { return time.Unix(int64(second), 0) }

// moment is what the tests record.
type moment struct {
	at    time.Time
	inUse int
}

func source(look func() moment) Source[moment] {
	return Source[moment]{
		Look: func(time.Duration) moment { return look() }, Second: func(now, last moment) {}, First: func() moment { return moment{} }, At: func(m moment) time.Time { return m.at },
		Used: func(now, last moment) bool { return now.inUse > 0 }, Peak: func() int { return 0 },
	}
}

func isUsed(_ moment, used bool) bool { return used }

func TestTheLastMinuteIsRemembered(t *testing.T) {
	t.Parallel()
	var r Recorder[moment]
	second := 0
	r.Init(source(func() moment { return moment{at(second), second} }))
	require.Equal(t, []moment{{at: at(0)}}, r.Moments(), "nothing is known but the present")
	for second = 1; second <= 200; second++ {
		r.record(r.source.Look(0), 0)
	}
	all := r.Moments() // at second 201
	require.Len(t, all, kept)
	require.Equal(t, 201, all[len(all)-1].inUse, "now")
	require.Equal(t, 200, all[len(all)-2].inUse)
	require.Equal(t, 141, all[0].inUse)
	second = 500
	all = r.Moments()
	require.Len(t, all, 2, "a minute without use has a beginning and an end")
	require.Equal(t, 200, all[0].inUse)
}

func TestThePeakOfTheLastHourIsRemembered(t *testing.T) {
	t.Parallel()
	var r Recorder[moment]
	r.Init(source(nil))
	now := time.Now().Truncate(time.Minute)
	for ago, peak := range map[time.Duration]int{70 * time.Minute: 9, 50 * time.Minute: 7, time.Minute: 5, 0: 6} {
		r.record(moment{at: now.Add(-ago)}, peak)
		r.record(moment{at: now.Add(-ago)}, peak-1)
	}
	require.Equal(t, 7, r.Peak())
}

func TestRecordingEndsWhenNothingIsUsed(t *testing.T) {
	t.Parallel()
	var r Recorder[moment]
	r.Init(source(nil))
	require.True(t, isUsed(r.record(moment{}, 0)), "the first moment has nothing to compare with")
	require.False(t, isUsed(r.record(moment{}, 0)))
	require.True(t, isUsed(r.record(moment{inUse: 1}, 0)))
}

// TestTheTimerIsSetOnce: and never in a bubble, nor after the end.
func TestTheTimerIsSetOnce(t *testing.T) {
	t.Parallel()
	var r Recorder[moment]
	r.Init(source(func() moment { return moment{} }))
	r.Wake()
	timer := r.timer
	require.NotNil(t, timer)
	require.Len(t, r.Moments(), 2, "the beginning, and now")
	r.Wake()
	require.Same(t, timer, r.timer)
	require.True(t, timer.Stop(), "the test is the timer")
	r.tick(0)
	require.False(t, r.set.Load(), "nothing is used")
	r.Init(source(func() moment { return moment{inUse: 1} }))
	r.tick(0)
	require.True(t, r.set.Load())
	require.True(t, r.timer.Stop())
	r.Stop()
	r.set.Store(false)
	r.Wake()
	require.False(t, r.set.Load())
}

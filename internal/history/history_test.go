package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestTheLastMinuteIsRemembered(t *testing.T) {
	t.Parallel()
	var r Recorder
	second := 0
	r.Init(func() Moment { return Moment{At: at(second), InUse: second} })
	require.Equal(t, []Moment{{At: at(0)}}, r.Moments(), "nothing is known but the present")
	for second = 1; second <= 200; second++ {
		r.record(r.look())
	}
	all := r.Moments() // at second 201
	require.Len(t, all, kept)
	require.Equal(t, 201, all[len(all)-1].InUse, "now")
	require.Equal(t, 200, all[len(all)-2].InUse)
	require.Equal(t, 141, all[0].InUse)
	second = 500
	all = r.Moments()
	require.Len(t, all, 2, "a minute without use has a beginning and an end")
	require.Equal(t, 200, all[0].InUse)
}

func TestRecordingEndsWhenNothingIsUsed(t *testing.T) {
	t.Parallel()
	var r Recorder
	require.True(t, r.record(Moment{}), "the first moment has nothing to compare with")
	require.False(t, r.record(Moment{}))
	require.True(t, r.record(Moment{InUse: 1}))
	require.True(t, r.record(Moment{Waiting: 1}))
	require.True(t, r.record(Moment{Moves: 2}), "something was used meanwhile")
	require.True(t, r.record(Moment{Moves: 2, DialErrors: 1}))
	require.False(t, r.record(Moment{Moves: 2, DialErrors: 1}))
}

// TestTheTimerIsSetOnce: and never in a bubble, nor after the end.
func TestTheTimerIsSetOnce(t *testing.T) {
	t.Parallel()
	var r Recorder
	r.Init(func() Moment { return Moment{} })
	r.Wake()
	timer := r.timer
	require.NotNil(t, timer)
	require.Len(t, r.Moments(), 2, "the beginning, and now")
	r.Wake()
	require.Same(t, timer, r.timer)
	require.True(t, timer.Stop(), "the test is the timer")
	r.tick()
	require.False(t, r.set.Load(), "nothing is used")
	r.Init(func() Moment { return Moment{InUse: 1} })
	r.tick()
	require.True(t, r.set.Load())
	require.True(t, r.timer.Stop())
	r.Stop()
	r.set.Store(false)
	r.Wake()
	require.False(t, r.set.Load())
}

package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seconds lets so many seconds pass, in each of which so many statements of the label arrive.
func (s *scene) seconds(n, arrivals int, quiet bool) {
	for range n {
		for range arrivals {
			s.Arrived("GET /pay")
		}
		s.Arrived("GET /list")
		s.now = s.now.Add(time.Second)
		s.EndSecond(s.now, time.Second, quiet)
	}
}

func (s *scene) of(label string) Arrival {
	for _, a := range s.Arrivals() {
		if a.Label == label {
			return a
		}
	}
	return Arrival{}
}

type scene struct {
	Report
	now time.Time
}

func TestALabelThatComesMoreOftenThanUsualIsKnownWithinThreeSecondsAndForAsLongAsItDoes(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	s.seconds(30, 10, true)
	require.InDelta(t, 10, s.of("GET /pay").Usual, 0.1)
	require.InDelta(t, 10, s.of("GET /pay").Lately, 0.1)
	require.Zero(t, s.of("GET /pay").Since)
	began := s.now
	s.seconds(3, 200, false)
	require.WithinDuration(t, began, s.of("GET /pay").Since, 3*time.Second)
	s.seconds(600, 200, false)
	require.WithinDuration(t, began, s.of("GET /pay").Since, 3*time.Second, "the incident does not become its own measure")
	require.InDelta(t, 10, s.of("GET /pay").Usual, 0.1)
	require.Zero(t, s.of("GET /list").Since)
	s.seconds(20, 10, true)
	require.Zero(t, s.of("GET /pay").Since)
	require.Equal(t, uint64(50*10+603*200), s.of("GET /pay").Count)
}

func TestThereIsNoGrowthWithoutAMeasureFromBefore(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	s.seconds(3, 10, true)
	s.seconds(60, 200, false)
	require.Negative(t, s.of("GET /pay").Usual)
	require.Zero(t, s.of("GET /pay").Since)
}

func TestAMoreFrequentUseWithoutTroubleBecomesUsual(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	s.seconds(300, 10, true)
	s.seconds(900, 60, true)
	require.InDelta(t, 60, s.of("GET /pay").Usual, 5)
	require.Zero(t, s.of("GET /pay").Since)
}

func TestARateFromBeforeAPauseIsNotOfLate(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	s.seconds(30, 10, true)
	s.seconds(10, 500, false)
	require.NotZero(t, s.of("GET /pay").Since)
	s.now = s.now.Add(time.Minute) // nobody has used the pool
	s.seconds(1, 10, false)
	require.Zero(t, s.of("GET /pay").Since)
	require.InDelta(t, 3, s.of("GET /pay").Lately, 0.1)
}

func TestARateThatOnlyWaversHasNotGrown(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	for i := range 300 {
		s.seconds(1, i*7%5, true) // 0 to 4
		require.Zero(t, s.of("GET /pay").Since)
	}
}

func TestALabelThatDoublesOrThatIsRareHasNotGrown(t *testing.T) {
	t.Parallel()
	s := &scene{now: start}
	s.seconds(30, 10, true)
	s.seconds(60, 25, false)
	require.Zero(t, s.of("GET /pay").Since)
	s.Arrived("POST /rare")
	s.seconds(30, 10, true)
	for i := range 60 { // three in two seconds
		for range 1 + i%2 {
			s.Arrived("POST /rare")
		}
		s.seconds(1, 10, false)
	}
	require.Zero(t, s.of("POST /rare").Since)
}

func TestLabelsBeyondTheBoundAreCountedTogether(t *testing.T) {
	t.Parallel()
	s := new(scene)
	for i := range 100 {
		s.Arrived(fmt.Sprint("customer ", i))
	}
	require.Len(t, s.Arrivals(), mostLabels+1)
	require.Equal(t, uint64(100-mostLabels), s.of(Other).Count)
}

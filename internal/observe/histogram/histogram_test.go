package histogram

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADurationIsCountedInTheFirstBucketThatHoldsIt(t *testing.T) {
	var h Histogram
	h.Record(0, 1)
	h.Record(Bounds[0], 1)
	h.Record(Bounds[0]+1, 8)
	h.Record(time.Minute, 1)
	h.Record(time.Hour, 1)
	s := h.Snapshot()
	want := Snapshot{Count: 12, Sum: 9*Bounds[0] + 8 + time.Minute + time.Hour}
	want.Buckets[0], want.Buckets[1], want.Buckets[len(Bounds)-1], want.Buckets[len(Bounds)] = 2, 8, 1, 1
	require.Equal(t, want, s)
	require.IsIncreasing(t, Bounds[:])
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Record(time.Second, 1) }))
}

package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheLastMinuteIsDrawn(t *testing.T) {
	now := time.Unix(100, 0)
	points := []Point{
		{At: now.Add(-2 * time.Minute), InUse: 9},
		{At: now.Add(-30 * time.Second), InUse: 0},
		{At: now, InUse: 4, WaitP99: 250 * time.Millisecond},
	}
	lines := drawLines(points)
	require.Equal(t, line{"in use", "4", "9", "1m0s", "0.0,1.0 120.0,31.0 240.0,17.7"}, lines[0])
	require.Equal(t, line{"waiting", "0", "0", "1m0s", "0.0,31.0 120.0,31.0 240.0,31.0"}, lines[1])
	require.Equal(t, "250ms", lines[2].Last)
	points[2].WaitP99 = 10 * time.Microsecond
	require.Equal(t, "0.0,31.0 120.0,31.0 240.0,31.0", drawLines(points)[2].Path, "a short wait does not look like a long one")
	require.Empty(t, drawLines(points[:1]), "the present alone is no line")
}

func TestALineForATerminal(t *testing.T) {
	now := time.Unix(100, 0)
	points := []Point{{At: now.Add(-2 * time.Minute), InUse: 99}, {At: now.Add(-31 * time.Second), InUse: 3}, {At: now, InUse: 7}}
	inUse := func(p Point) float64 { return float64(p.InUse) }
	require.Equal(t, "▁▄▁█", Spark(points, 4, inUse))
	require.Equal(t, "▁▁▁▁", Spark(points, 4, func(Point) float64 { return 0 }))
	require.Empty(t, Spark(points[:1], 4, inUse))
}

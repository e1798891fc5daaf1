package bubble_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

func TestNameTellsBubblesApart(t *testing.T) {
	require.Empty(t, bubble.Name(time.Now()))
	seen := map[string]bool{}
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			name := bubble.Name(time.Now())
			require.NotEmpty(t, name)
			require.False(t, seen[name])
			seen[name] = true
			other := make(chan string)
			go func() { other <- bubble.Name(time.Now()) }()
			require.Equal(t, name, <-other)
		})
	}
	require.Empty(t, bubble.Name(time.Now()))
	require.Empty(t, bubble.Name(time.Now().UTC().Round(0)), "a time without a monotonic reading, outside")
}

func TestClockGoesOnInBubblesAndOutside(t *testing.T) {
	var c bubble.Clock
	c.Start()
	require.False(t, c.World().Guest())
	last := c.Now()
	require.Positive(t, last)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			require.True(t, c.Follow(last))
			require.False(t, c.Follow(last), "it is here")
			require.True(t, c.World().Guest())
			first := c.Now()
			require.Equal(t, last+1, first)
			time.Sleep(time.Hour)
			last = c.Now()
			require.Equal(t, first+int64(time.Hour), last)
			require.True(t, time.Now().Equal(c.Time(last)))
			require.Equal(t, last, c.Of(time.Now()))
		})
		require.True(t, bubble.Leapt(c.Now(), last), "outside it is 26 years later")
	}
	require.True(t, c.Follow(last))
	require.False(t, c.World().Guest())
	require.WithinDuration(t, time.Now(), c.Time(c.Now()), time.Minute)
	require.Less(t, c.Now()-last, int64(time.Hour))
}

func TestAClockThatIsMadeInABubbleIsAtHomeThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c bubble.Clock
		c.Start()
		require.False(t, c.World().Guest())
		require.False(t, c.Follow(c.Now()))
	})
}

package pause

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPauseDoublesWithinItsBounds(t *testing.T) {
	for _, tc := range []struct{ last, shortest, longest, want time.Duration }{
		{0, 20, 300, 20},
		{20, 20, 300, 40},
		{160, 20, 300, 300},
		{5, 20, 300, 20},
		{0, 20, 10, 10},
		{math.MaxInt64 / 3 * 2, 20, math.MaxInt64, math.MaxInt64},
	} {
		require.Equal(t, tc.want, Longer(tc.last, tc.shortest, tc.longest), "%+v", tc)
	}
}

func TestTriesThatFailAtTheSameTimeLengthenThePauseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries Tries
		require.False(t, tries.Any())
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			for range 3 {
				tries.Failed(time.Second, 3*time.Second)
			}
			require.True(t, tries.Any())
			require.Equal(t, want, time.Until(tries.Next()))
			time.Sleep(want)
		}
	})
}

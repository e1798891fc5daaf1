package pooldriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePausesOfRetryAreRandomAndDouble(t *testing.T) {
	r, err := Retry{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Retry{MaxAttempts: 50, MinBackoff: 2 * time.Millisecond, MaxBackoff: time.Second}, r)
	longest := map[int]time.Duration{1: 2, 2: 4, 3: 8, 7: 128, 9: 512, 10: 1000, 20: 1000}
	for n, most := range longest {
		most *= time.Millisecond
		var low, high time.Duration = most, 0
		for range 1000 {
			d := r.backoff(n)
			low, high = min(low, d), max(high, d)
		}
		require.Less(t, high, most)
		require.Greater(t, high, most*9/10)
		require.Less(t, low, most/10)
	}
	huge := Retry{MinBackoff: 1 << 62, MaxBackoff: 1<<63 - 1}
	require.Positive(t, huge.backoff(50))
}

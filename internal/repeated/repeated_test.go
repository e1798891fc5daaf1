package repeated

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALineIsSaidOnceInEachPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Line
		_, due := l.Due()
		require.True(t, due)
		for range 5 {
			_, due = l.Due()
			require.False(t, due)
		}
		time.Sleep(Pause)
		since, due := l.Due()
		require.True(t, due)
		require.Equal(t, 5, since)
		time.Sleep(Pause)
		since, due = l.Due()
		require.True(t, due)
		require.Zero(t, since)
	})
}

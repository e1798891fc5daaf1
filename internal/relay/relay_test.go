package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnotherRunnerMayBeginWhenTheLastIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = time.Second
		var r Relay
		require.False(t, r.Busy(patience))
		first := r.Begin()
		time.Sleep(patience - 1)
		require.True(t, r.Busy(patience))
		first.Next()
		time.Sleep(patience - 1)
		require.True(t, r.Busy(patience), "it makes progress")
		time.Sleep(time.Nanosecond)
		require.False(t, r.Busy(patience))
		require.True(t, first.Last())

		second := r.Begin()
		require.False(t, first.Last())
		require.True(t, second.Last())
		first.End()
		require.True(t, r.Busy(patience), "the second goes on")
		second.End()
		require.False(t, r.Busy(patience))
	})
}

package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A monitoring system takes a counter that falls for one that began again at zero, and
// adds all of it a second time.
func TestHowManyDidNotWaitNeverFalls(t *testing.T) {
	t.Parallel()
	var c Counters
	require.Equal(t, uint64(2), c.AtOnce(2))
	c.Waited(time.Millisecond) // one of the two had waited, and is awake only now
	require.Equal(t, uint64(2), c.AtOnce(2))
	require.Equal(t, uint64(3), c.AtOnce(4))
}

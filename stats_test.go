package pooldriver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A monitoring system takes a counter that falls for one that began again at zero, and
// adds all of it a second time.
func TestABucketOfTheWaitNeverFalls(t *testing.T) {
	_, db, c, _ := openGateway(t)
	require.NoError(t, db.Ping()) // waits for a dial
	require.NoError(t, db.Ping()) // does not wait
	before := c.Stats().Wait.Buckets[0]
	c.stats.waited.Add(1) // the statement had waited, and is awake only now
	require.Equal(t, before, c.Stats().Wait.Buckets[0])
}

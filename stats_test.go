package pooldriver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// A monitoring system takes a counter that falls for one that began again at zero, and
// adds all of it a second time.
func TestABucketOfTheWaitNeverFalls(t *testing.T) {
	_, db, c := openStub(t, dialects.Traits{})
	require.NoError(t, db.Ping())
	require.NoError(t, db.Ping()) // does not wait
	before := c.Stats().Wait.Buckets[0]
	c.stats.waited.Add(1) // the statement had waited, and is awake only now
	require.Equal(t, before, c.Stats().Wait.Buckets[0])
}

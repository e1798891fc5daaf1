package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
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

// TestEachStatementWithoutAConnectionIsCountedByItsReason, and one that shares its task's
// connection in the end is not.
func TestEachStatementWithoutAConnectionIsCountedByItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, c := openStub(t, dialects.Traits{}, ambient(AmbientSeparate), deadlockAfter(time.Second), func(c *Config) {
			c.AcquireTimeout, c.MaxWaiters, c.BreakerFailures = 10*time.Second, 1, 1
		})
		want := map[AcquireFailure]uint64{}
		for _, why := range acquireFailures {
			want[why] = 0
		}
		require.Equal(t, want, c.Stats().AcquireFailures)
		counted := func(why AcquireFailure) {
			t.Helper()
			want[why]++
			require.Equal(t, want, c.Stats().AcquireFailures)
		}

		refused := errors.New("refused")
		s.server.Refuse(refused)
		c.Flush()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), refused)
		counted(AcquireDialFailed)
		require.ErrorIs(t, db.Ping(), pool.ErrUnavailable)
		counted(AcquireBreakerOpen)
		s.server.Refuse(nil)
		time.Sleep(time.Hour)

		task, end := WithTask(t.Context())
		tx, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		_, err = db.ExecContext(task, "INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, ErrDeadlock)
		counted(AcquireDeadlock)

		require.ErrorIs(t, db.Ping(), pool.ErrTimeout)
		counted(AcquireTimeout)

		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- db.PingContext(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), pool.ErrTooManyWaiters)
		counted(AcquireQueueFull)
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)
		counted(AcquireCancelled)

		require.NoError(t, tx.Rollback())
		end()
		require.NoError(t, c.Close())
		late := sql.OpenDB(c)
		require.ErrorIs(t, late.Ping(), pool.ErrClosed)
		counted(AcquireClosed)
		require.NoError(t, late.Close())
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

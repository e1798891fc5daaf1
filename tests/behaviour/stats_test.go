package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// TestEachStatementWithoutAConnectionIsCountedByItsReason, and one that shares its task's
// connection in the end is not.
func TestEachStatementWithoutAConnectionIsCountedByItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, c := openStub(t, dialects.Traits{}, deadlockAfter(time.Second), func(c *pooldriver.Config) {
			c.AcquireTimeout, c.MaxWaiters, c.BreakerFailures = 10*time.Second, 1, 1
		})
		want := map[pooldriver.AcquireFailure]uint64{}
		for _, why := range []pooldriver.AcquireFailure{
			pooldriver.AcquireTimeout, pooldriver.AcquireCancelled, pooldriver.AcquireQueueFull, pooldriver.AcquireBreakerOpen,
			pooldriver.AcquireDialFailed, pooldriver.AcquireDeadlock, pooldriver.AcquireClosed,
		} {
			want[why] = 0
		}
		require.Equal(t, want, c.Stats().AcquireFailures)
		counted := func(why pooldriver.AcquireFailure) {
			t.Helper()
			want[why]++
			require.Equal(t, want, c.Stats().AcquireFailures)
		}

		refused := errors.New("refused")
		s.Server.Refuse(refused)
		c.Flush()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), refused)
		counted(pooldriver.AcquireDialFailed)
		require.ErrorIs(t, db.Ping(), pool.ErrUnavailable)
		counted(pooldriver.AcquireBreakerOpen)
		s.Server.Refuse(nil)
		time.Sleep(time.Hour)

		task, end := pooldriver.WithTask(t.Context())
		tx, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		beside, endBeside := pooldriver.NewTask(task)
		defer endBeside()
		_, err = db.ExecContext(beside, "INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock)
		counted(pooldriver.AcquireDeadlock)

		require.ErrorIs(t, db.Ping(), pool.ErrTimeout)
		counted(pooldriver.AcquireTimeout)

		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- db.PingContext(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, db.Ping(), pool.ErrTooManyWaiters)
		counted(pooldriver.AcquireQueueFull)
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)
		counted(pooldriver.AcquireCancelled)

		require.NoError(t, tx.Rollback())
		end()
		require.NoError(t, c.Close())
		late := sql.OpenDB(c)
		require.ErrorIs(t, late.Ping(), pool.ErrClosed)
		counted(pooldriver.AcquireClosed)
		require.NoError(t, late.Close())
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

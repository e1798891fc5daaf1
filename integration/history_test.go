package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pool"
)

// left counts the callers whose context has ended, soon or after a second.
func left(m pooldriver.Moment) uint64 {
	return m.AcquireFailures[pooldriver.AcquireCancelled] + m.AcquireFailures[pooldriver.AcquireGaveUp]
}

// TestTheLastSecondsAreRemembered: while the pool is used, and not beyond.
func TestTheLastSecondsAreRemembered(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		i := newIncident(t, account, "pool_max_conns=1")
		require.Len(t, i.connector.History(), 1, "the present")
		conn, err := i.db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { defer close(gone); _ = i.db.PingContext(ctx) }()
		require.Eventually(t, func() bool { // a second or two of waiting, in one moment that is over
			for _, m := range i.connector.History()[1:] {
				if m.InUse == 1 && m.Waiting == 1 && time.Since(m.At) > 500*time.Millisecond {
					return true
				}
			}
			return false
		}, slowMachine, 20*time.Millisecond)
		cancel()
		<-gone
		require.NoError(t, conn.Close())
		require.Eventually(t, func() bool {
			all := i.connector.History()
			last, before := all[len(all)-1], all[len(all)-2]
			return left(last) == 1 && left(before) == 1 && before.InUse == 0
		}, slowMachine, 20*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		idle := len(i.connector.History())
		time.Sleep(1500 * time.Millisecond)
		require.Len(t, i.connector.History(), idle, "nothing is recorded of a pool that nobody uses")
	})
}

// TestLockWaitsAsksOverASpareConnection: nobody waits because of it, and a full pool is left alone.
func TestLockWaitsAsksOverASpareConnection(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		i := newIncident(t, account, "pool_max_conns=3")
		i.maySeeLocks()
		i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
		i.exec("INSERT INTO stock VALUES (1, 0)")
		tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		_, err = tx.Exec("UPDATE stock SET n = 1 WHERE id = 1")
		require.NoError(t, err)
		i.later(func(ctx context.Context) { _, _ = i.db.ExecContext(ctx, "UPDATE stock SET n = 4711 WHERE id = 1") })
		var waits []pooldriver.LockWait
		require.Eventually(t, func() bool {
			waits, err = i.connector.LockWaits(t.Context())
			return len(waits) > 0
		}, slowMachine, 50*time.Millisecond)
		require.NoError(t, err)
		holders := i.connector.Holders()
		require.Len(t, holders, 2)
		require.Equal(t, "POST /orders", holders[0].Label)
		require.Equal(t, []uint64{holders[1].Conn, holders[0].Conn}, []uint64{waits[0].Conn, waits[0].BlockerConn})
		require.Equal(t, holders[0].ProcessID, waits[0].BlockerProcess)
		require.NotContains(t, waits[0].BlockerStatement, "4711")

		conn, err := i.db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		failures := i.connector.Stats().AcquireFailures
		_, err = i.connector.LockWaits(t.Context())
		require.ErrorIs(t, err, pool.ErrNoneNow)
		require.Equal(t, failures, i.connector.Stats().AcquireFailures, "who asks is no statement that got no connection")
		counted, _, err := account.Backends(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, counted, 3, "by the server")
		require.NoError(t, conn.Close())
	})
}

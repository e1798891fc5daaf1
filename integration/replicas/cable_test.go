package replicas

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// testACableIsPulled has reads on a replica that falls silent: its connections stay, and nothing is answered. There are more
// readers than connections, so some wait for an answer, and some for a connection.
//
// idle: nobody has read for a while when the cable is pulled, so nobody has looked at the replica.
func testACableIsPulled(t *testing.T, s *stage, idle bool) {
	const (
		readers = 16
		silence = 3 * time.Second // until the replica's watcher is sure: a second, a question, and a dial
	)
	s.empty(t)
	db := open(t, connect(t, s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_max_conns=20", "pool_replica_max_conns=4")))
	ctx := pooldriver.Replica(t.Context())
	var onReplica [readers]atomic.Bool
	var last [readers]atomic.Int64 // when the last read of each has begun, in ns since 1970
	var longest atomic.Int64
	stop := make(chan struct{})
	var pause sync.RWMutex // readers hold it
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				pause.RLock()
				begun := time.Now()
				_, replica, err := s.read(ctx, db, i)
				pause.RUnlock()
				if err != nil {
					t.Errorf("a read, after %v: %v", time.Since(begun), err)
				}
				longest.Store(max(longest.Load(), int64(time.Since(begun))))
				onReplica[i].Store(replica)
				last[i].Store(begun.UnixNano())
			}
		})
	}
	end := sync.OnceFunc(func() {
		close(stop)
		all.Wait()
	})
	defer end()
	// await returns when each reader has had a read that began after since, where want says.
	await := func(want bool, since time.Time) {
		t.Helper()
		require.Eventually(t, func() bool {
			for i := range readers {
				if onReplica[i].Load() != want || last[i].Load() < since.UnixNano() {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond)
	}
	await(true, time.Now())
	inTask := s.beginInTask(t)
	if idle {
		pause.Lock()
		time.Sleep(15 * time.Second)
	}
	s.proxies[0].Unplug()
	back := sync.OnceFunc(s.proxies[0].Plug)
	defer back()
	pulled := time.Now()
	if idle {
		pause.Unlock()
	}
	inTask()
	await(false, pulled)
	t.Logf("all are served %v after the cable was pulled; the longest read took %v", time.Since(pulled).Round(time.Millisecond), time.Duration(longest.Load()).Round(time.Millisecond))
	require.Less(t, time.Duration(longest.Load()), silence+margin)

	longest.Store(0)
	time.Sleep(10 * time.Second)
	await(false, time.Now())
	require.Less(t, time.Duration(longest.Load()), time.Second, "the replica is left alone")

	back()
	plugged := time.Now()
	await(true, plugged)
	t.Logf("the replica serves all %v after the cable was back", time.Since(plugged).Round(time.Millisecond))
	end()
}

// beginInTask begins a transaction on the replica, in a task. The returned function uses it, and begins another one, while the
// replica is silent.
func (s *stage) beginInTask(t *testing.T) (use func()) {
	t.Helper()
	db := open(t, connect(t, s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_replica_max_conns=2")))
	begin := func() *sql.Tx {
		ctx, end := pooldriver.WithTask(pooldriver.Replica(t.Context()))
		t.Cleanup(end)
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		return tx
	}
	tx, idle := begin(), begin()
	require.NoError(t, idle.Rollback())
	return func() {
		var both sync.WaitGroup
		both.Go(func() {
			_, err := tx.ExecContext(t.Context(), "SELECT 1")
			if err == nil || errors.Is(err, pooldriver.ErrTaskEnded) {
				t.Errorf("a statement of the transaction: %v", err)
			}
			_ = tx.Rollback()
		})
		both.Go(func() {
			begun := time.Now()
			if err := begin().Rollback(); err != nil {
				t.Errorf("the other transaction: %v", err)
			}
			t.Logf("the other transaction has begun after %v", time.Since(begun).Round(time.Millisecond))
			if time.Since(begun) > 17*time.Second {
				t.Error("it was tried on the replica again")
			}
		})
		both.Wait()
	}
}

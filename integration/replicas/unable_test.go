package replicas

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// margin is for a busy machine.
const margin = 5 * time.Second

// testReplicasThatCannotServe has replicas that are cut off, or behind: their reads cost no error and little time.
func testReplicasThatCannotServe(t *testing.T, s *stage) {
	const wait = 50 * time.Millisecond // the default
	s.empty(t)
	db, strict := s.open(t), s.open(t, "pool_replica_fallback=off")
	ctx := pooldriver.Replica(pooldriver.WithReads(t.Context()))
	onReplica := func(db *sql.DB) bool {
		_, onReplica, err := s.read(ctx, db, 0)
		return err == nil && onReplica
	}
	served := func() bool { return onReplica(db) && onReplica(strict) }
	require.Eventually(t, served, time.Minute, 10*time.Millisecond)

	// all has 16 workers write and read while the replicas are cut off or held.
	all := func(t *testing.T, begin func()) {
		var running sync.WaitGroup
		var once sync.Once
		start := time.Now()
		for worker := range 16 {
			running.Go(func() {
				var longest time.Duration
				for n := 1; time.Since(start) < time.Second || n < 5; n++ {
					if n == 3 {
						once.Do(begin)
					}
					ctx := pooldriver.WithReads(t.Context())
					if err := s.write(ctx, db, worker, n); err != nil {
						t.Errorf("write: %v", err)
						return
					}
					begun := time.Now()
					got, _, err := s.read(pooldriver.Replica(ctx), db, worker)
					longest = max(longest, time.Since(begun))
					if err != nil || got != n {
						t.Errorf("read %d, want %d: %v", got, n, err)
						return
					}
				}
				if longest > wait+margin {
					t.Errorf("a read took %v", longest)
				}
			})
		}
		running.Wait()
	}
	t.Run("cut off", func(t *testing.T) {
		s.empty(t)
		all(t, func() {
			for _, proxy := range s.proxies {
				proxy.Refuse()
			}
		})
		require.False(t, onReplica(db))
		_, _, err := s.read(ctx, strict, 0)
		require.ErrorIs(t, err, pooldriver.ErrNoReplica)
		for _, proxy := range s.proxies {
			proxy.Serve()
		}
		require.Eventually(t, served, time.Minute, 10*time.Millisecond)
	})
	t.Run("held", func(t *testing.T) {
		s.empty(t)
		all(t, func() {
			for _, replica := range s.Replicas {
				if err := replica.Hold(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
		writing := pooldriver.WithReads(t.Context())
		require.NoError(t, s.write(writing, db, 100, 1))
		begun := time.Now()
		n, onReplica, err := s.read(pooldriver.Replica(writing), db, 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.False(t, onReplica)
		require.Less(t, time.Since(begun), wait+margin)
		require.NoError(t, s.write(writing, strict, 100, 2))
		_, _, err = s.read(pooldriver.Replica(writing), strict, 100)
		require.ErrorIs(t, err, pooldriver.ErrNoReplica)
		for _, replica := range s.Replicas {
			require.NoError(t, replica.Release(context.Background()))
		}
		require.Eventually(t, served, time.Minute, 10*time.Millisecond)
	})
}

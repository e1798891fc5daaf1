package replicas

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// TestPgxReadsOnReplicas by the rules of database/sql.
func TestPgxReadsOnReplicas(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := pooldriver.New(s.account.URL("pool_replicas=" + s.proxies[0].Addr()))
	require.NoError(t, c.Err())
	pool := pgxpooldriver.New(c)
	defer pool.Close()
	const where = "SELECT pg_is_in_recovery() FROM (SELECT count(*) FROM counters) c"
	type querier interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}
	onReplica := func(ctx context.Context, q querier) (is bool) {
		t.Helper()
		require.NoError(t, q.QueryRow(ctx, where).Scan(&is))
		return is
	}
	ctx := pooldriver.Replica(t.Context())
	require.Eventually(t, func() bool { return onReplica(ctx, pool) }, 20*time.Second, 10*time.Millisecond)
	require.False(t, onReplica(t.Context(), pool))
	require.False(t, onReplica(pooldriver.Primary(ctx), pool))
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	require.True(t, onReplica(t.Context(), tx))
	require.NoError(t, tx.Commit(ctx))
	tx, err = pool.Begin(ctx)
	require.NoError(t, err)
	require.False(t, onReplica(ctx, tx))
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
		require.False(t, onReplica(ctx, c), "its connection is of the primary")
		return nil
	}))
	batch := func(texts ...string) (is bool) {
		t.Helper()
		var b pgx.Batch
		for _, text := range texts {
			b.Queue(text)
		}
		results := pool.SendBatch(ctx, &b)
		require.NoError(t, results.QueryRow().Scan(&is))
		require.NoError(t, results.Close())
		return is
	}
	require.True(t, batch(where, where))
	require.False(t, batch(where, "INSERT INTO counters VALUES (1, 1)"))
	keeps := pooldriver.WithReads(t.Context())
	_, err = pool.Exec(keeps, s.insert, 2, 1)
	require.NoError(t, err)
	var n int
	require.NoError(t, pool.QueryRow(pooldriver.Replica(keeps), strings.Replace(s.max, ", pg_is_in_recovery()", "", 1), 2).Scan(&n))
	require.Equal(t, 1, n)
}

// TestReadsUnderAFloorShareAPipeline, and none of them misses what its context has written.
func TestReadsUnderAFloorShareAPipeline(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_replica_max_conns=1", "pool_pipeline=16", "pool_max_conns=8"))
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	s.requireServes(t, db)
	var all sync.WaitGroup
	for worker := range 32 {
		all.Go(func() {
			ctx := pooldriver.WithReads(t.Context())
			for n := 1; n <= 10; n++ {
				if err := s.write(ctx, db, worker, n); err != nil {
					t.Error(err)
				}
				for range 10 {
					if got, _, err := s.read(pooldriver.Replica(ctx), db, worker); err != nil || got != n {
						t.Errorf("read %d, want %d: %v", got, n, err)
					}
				}
			}
		})
	}
	all.Wait()
	stats := c.Stats()
	t.Logf("%v, %d pipelined on the replica", stats.Replica.Reads, stats.Replica.Pools[0].Pool.Pipelined)
	require.Positive(t, stats.Replica.Pools[0].Pool.Pipelined)
}

// TestReadsOfThePrimaryUnderAFloorShareAPipeline, while the replica is behind most of the time. No context sees less than it has seen.
func TestReadsOfThePrimaryUnderAFloorShareAPipeline(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := connect(t, s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_replica_wait=1ms", "pool_pipeline=16", "pool_max_conns=2"))
	db, writer := open(t, c), s.account.OpenBare(t)
	s.requireServes(t, db)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var others sync.WaitGroup
	others.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if err := s.write(context.Background(), writer, 0, n); err != nil {
				t.Error(err)
			}
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			if err := s.Replicas[0].Hold(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
			if err := s.Replicas[0].Release(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	var all sync.WaitGroup
	for worker := range 32 {
		all.Go(func() {
			ctx := pooldriver.WithReads(t.Context())
			last := 0
			for n := 1; n <= 10; n++ {
				if err := s.write(ctx, db, worker+1, n); err != nil {
					t.Error(err)
				}
				for range 10 {
					if got, _, err := s.read(pooldriver.Replica(ctx), db, worker+1); err != nil || got != n {
						t.Errorf("read %d, want %d: %v", got, n, err)
					}
					got, onReplica, err := s.read(pooldriver.Replica(ctx), db, 0)
					if err != nil || got < last {
						t.Errorf("read %d after %d, on the replica: %t: %v", got, last, onReplica, err)
					}
					last = got
				}
			}
		})
	}
	all.Wait()
	stop()
	others.Wait()
	stats := c.Stats()
	t.Logf("%v, %d pipelined on the primary", stats.Replica.Reads, stats.Pipelined)
	require.Positive(t, stats.Pipelined)
	require.Positive(t, stats.Replica.Reads[pooldriver.ReplicaServed]+stats.Replica.Reads[pooldriver.ReplicaWaited])
}

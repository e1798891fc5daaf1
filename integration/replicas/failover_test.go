package replicas

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// failover is many workers that write and read their own counters while the primary is lost.
type failover struct {
	*stage
	db   *sql.DB
	stop chan struct{}
	all  sync.WaitGroup

	served     [workers]atomic.Int64 // when each had a write and a read without an error, in ns since 1970
	lastFailed atomic.Int64

	mu           sync.Mutex // protects the following
	acknowledged []acknowledged
	older        []older
	onReplicas   int
	failures     int
}

// acknowledged is a write that the program knows to be committed.
type acknowledged struct {
	worker, n int
	begun     time.Time
}

// older is a read that has shown less than a write before it.
type older struct {
	acknowledged
	read      int
	onReplica bool
}

// run is one worker. Its context knows all of its writes, or, for every second worker, the last one.
func (f *failover) run(worker int) {
	life := pooldriver.WithReads(context.Background())
	for n := 1; ; n++ {
		select {
		case <-f.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(life, 10*time.Second)
		if worker%2 == 0 {
			ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
			ctx = pooldriver.WithReads(ctx)
		}
		err := f.turn(ctx, acknowledged{worker, n, time.Now()})
		cancel()
		if err == nil {
			f.served[worker].Store(time.Now().UnixNano())
			continue
		}
		f.lastFailed.Store(time.Now().UnixNano())
		f.mu.Lock()
		f.failures++
		f.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *failover) turn(ctx context.Context, write acknowledged) error {
	if err := f.write(ctx, f.db, write.worker, write.n); err != nil {
		return err
	}
	n, onReplica, err := f.read(pooldriver.Replica(ctx), f.db, write.worker)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acknowledged = append(f.acknowledged, write)
	if err == nil && onReplica {
		f.onReplicas++
	}
	if err == nil && n < write.n {
		f.older = append(f.older, older{write, n, onReplica})
	}
	return err
}

// waitForAll returns when every worker has been served since.
func (f *failover) waitForAll(t *testing.T, since time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		for i := range f.served {
			if f.served[i].Load() < since.UnixNano() {
				return false
			}
		}
		return true
	}, 2*time.Minute, 10*time.Millisecond)
}

// counters asks a server how far each worker's counter is.
func (f *failover) counters(t *testing.T, s *testbed.Server) map[int]int {
	t.Helper()
	rows, err := f.account.On(s).OpenBare(t).QueryContext(t.Context(), "SELECT worker, max(n) FROM counters GROUP BY worker")
	require.NoError(t, err)
	defer rows.Close()
	counters := map[int]int{}
	for rows.Next() {
		var worker, n int
		require.NoError(t, rows.Scan(&worker, &n))
		counters[worker] = n
	}
	require.NoError(t, rows.Err())
	return counters
}

// TestNoReadIsStaleWhenAReplicaIsPromoted kills the primary under load and promotes a replica. The replicas are
// asynchronous: the promoted one itself says what it has of the writes that were acknowledged.
func TestNoReadIsStaleWhenAReplicaIsPromoted(t *testing.T) {
	for range randomtest.Rounds(1, 4) {
		s := onStage(t, testbed.Postgres)
		hosts := strings.Join([]string{s.Primary.Addr, s.Replicas[0].Addr, s.Replicas[1].Addr}, ",")
		db := open(t, connect(t, s.account.Via(hosts).URL("target_session_attrs=read-write", "pool_replicas=auto", "pool_max_conns=20")))
		f := &failover{stage: s, db: db, stop: make(chan struct{})}
		for worker := range workers {
			f.all.Go(func() { f.run(worker) })
		}
		end := sync.OnceFunc(func() {
			close(f.stop)
			f.all.Wait()
		})
		defer end()
		f.waitForAll(t, time.Now())
		time.Sleep(time.Second)
		require.Zero(t, f.lastFailed.Load(), "errors before the failure")
		require.NoError(t, s.Replicas[1].Hold(t.Context()))
		s.Primary.Kill(t)
		next := s.Foremost(t)
		kept := f.counters(t, next)
		promoted := time.Now()
		s.Promote(t, next)
		f.waitForAll(t, time.Now())
		back := time.Now()
		time.Sleep(2 * time.Second)
		end()
		t.Logf("all %d workers are served %v after the promotion began; %d errors until then", workers, back.Sub(promoted).Round(time.Millisecond), f.failures)
		require.Less(t, f.lastFailed.Load(), back.UnixNano(), "errors after all were served again")
		f.requireNothingStale(t, kept, promoted)
	}
}

// TestAPromotedStandbyServesNothingAfterAQuietTime promotes a standby while its primary goes on, and gives it a row of its own.
func TestAPromotedStandbyServesNothingAfterAQuietTime(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	db := s.openOne(t)
	s.requireServes(t, db)
	admin, err := s.Replicas[0].Admin()
	require.NoError(t, err)
	_, err = admin.ExecContext(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	_, err = s.account.On(s.Replicas[0]).OpenBare(t).ExecContext(t.Context(), s.insert, 0, 99)
	require.NoError(t, err)
	time.Sleep(time.Duration(randomtest.Rounds(3, 12)) * time.Second)
	for range 20 {
		n, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
		require.NoError(t, err)
		require.False(t, onReplica)
		require.NotEqual(t, 99, n, "a row of another history")
	}
}

// requireNothingStale compares what the workers were told and shown with what the promoted server has. A write that began
// before the promotion, and that the server did not have then, is lost with the primary.
func (f *failover) requireNothingStale(t *testing.T, kept map[int]int, promoted time.Time) {
	t.Helper()
	rows, err := f.account.On(f.Primary).OpenBare(t).QueryContext(t.Context(), "SELECT worker, n FROM counters")
	require.NoError(t, err)
	defer rows.Close()
	type row struct{ worker, n int }
	stored := map[row]bool{}
	for rows.Next() {
		var r row
		require.NoError(t, rows.Scan(&r.worker, &r.n))
		stored[r] = true
	}
	require.NoError(t, rows.Err())
	// gone: the servers have lost it.
	gone := func(a acknowledged) bool {
		return a.begun.Before(promoted) && a.n > kept[a.worker] && !stored[row{a.worker, a.n}]
	}
	lost, after := 0, 0
	for _, a := range f.acknowledged {
		if a.begun.After(promoted) {
			after++
		}
		if !stored[row{a.worker, a.n}] {
			lost++
			require.True(t, gone(a), "write %d of worker %d is acknowledged, and not there", a.n, a.worker)
		}
	}
	t.Logf("%d writes acknowledged, %d of them after the promotion began, %d lost with the primary; %d reads on replicas, %d older than the write before them",
		len(f.acknowledged), after, lost, f.onReplicas, len(f.older))
	for _, o := range f.older {
		require.True(t, gone(o.acknowledged) && o.read >= kept[o.worker], "worker %d wrote %d and read %d, on a replica: %t", o.worker, o.n, o.read, o.onReplica)
	}
	require.Positive(t, after)
	require.Positive(t, f.onReplicas)
}

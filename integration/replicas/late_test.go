package replicas

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// maxLag is what the tests of it allow.
const maxLag = time.Second

// testLate has a counter that grows all the time, and one replica that is held. No read on it is older than maxLag, and a quiet
// primary makes none late.
func testLate(t *testing.T, s *stage) {
	s.empty(t)
	db := s.openOne(t, "pool_replica_max_lag=1s")
	require.NoError(t, s.write(t.Context(), db, 0, 1))
	s.CatchUp(t)
	s.requireServes(t, db)
	time.Sleep(4 * maxLag)
	s.requireServes(t, db) // nothing was written since
	require.NoError(t, s.Replicas[0].Hold(t.Context()))
	defer func() { require.NoError(t, s.Replicas[0].Release(context.Background())) }()
	s.requireNoneIsLate(t, db)
}

// openOne opens the account with the first replica.
func (s *stage) openOne(t *testing.T, parameters ...string) *sql.DB {
	t.Helper()
	return open(t, connect(t, s.account.URL(append(parameters, "pool_replicas="+s.proxies[0].Addr())...)))
}

// requireServes returns when the replica serves.
func (s *stage) requireServes(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
		require.NoError(t, err)
		return onReplica
	}, 20*time.Second, 10*time.Millisecond)
}

// requireNoneIsLate writes for some seconds, and requires that reads go to the primary in the end, and that none was older than
// maxLag.
func (s *stage) requireNoneIsLate(t *testing.T, db *sql.DB) {
	t.Helper()
	written := []time.Time{{}, {}} // when each number was committed; 0 and 1 were there before
	onReplicas := 0
	for end := time.Now().Add(4 * maxLag); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		require.NoError(t, s.write(t.Context(), db, 0, len(written)))
		written = append(written, time.Now())
		begun := time.Now()
		n, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
		require.NoError(t, err)
		if onReplica {
			onReplicas++
		}
		if next := max(n+1, 2); next < len(written) {
			require.Less(t, begun.Sub(written[next]), maxLag, "%d was there", next)
		}
	}
	_, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
	require.NoError(t, err)
	require.False(t, onReplica)
	t.Logf("%d reads of %d on the replica", onReplicas, len(written)-2)
}

// TestAReplicaWhoseLinkIsSilentIsLate has the primary's sender stand still: the standby has replayed what it has received, and its
// connection is open.
func TestAReplicaWhoseLinkIsSilentIsLate(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	db := s.openOne(t, "pool_replica_max_lag=1s")
	s.requireServes(t, db)
	admin, err := s.Primary.Admin()
	require.NoError(t, err)
	var senders []int
	rows, err := admin.QueryContext(t.Context(), "SELECT pid FROM pg_stat_replication")
	require.NoError(t, err)
	for rows.Next() {
		var pid int
		require.NoError(t, rows.Scan(&pid))
		senders = append(senders, pid)
	}
	require.NoError(t, rows.Err())
	require.Len(t, senders, 2)
	for _, pid := range senders {
		defer s.Primary.StopProcess(t, pid)()
	}
	s.requireNoneIsLate(t, db)
}

// TestASwitchOfTheLogMakesNoReplicaLate: the end of the log is then a place that no standby reaches before the next write.
func TestASwitchOfTheLogMakesNoReplicaLate(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	db := s.openOne(t, "pool_replica_max_lag=1s")
	s.requireServes(t, db)
	admin, err := s.Primary.Admin()
	require.NoError(t, err)
	for range 3 {
		_, err = admin.ExecContext(t.Context(), "SELECT pg_switch_wal()")
		require.NoError(t, err)
		time.Sleep(2 * maxLag)
		s.requireServes(t, db)
	}
	for range 50 {
		_, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
		require.NoError(t, err)
		require.True(t, onReplica)
		time.Sleep(20 * time.Millisecond)
	}
}

// TestAReadDoesNotWaitForWhatIsNotFlushed: with synchronous_commit=off a commit is visible up to 600 ms before a standby can have it.
func TestAReadDoesNotWaitForWhatIsNotFlushed(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr(), "synchronous_commit=off", "pool_replica_wait=1m"))
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	s.requireServes(t, db)
	ctx := pooldriver.WithReads(t.Context())
	for n := range 100 {
		require.NoError(t, s.write(ctx, db, 1, n))
		got, _, err := s.read(pooldriver.Replica(ctx), db, 1)
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	reads := c.Stats().Replica.Reads
	t.Logf("%v", reads)
	require.GreaterOrEqual(t, reads[pooldriver.ReplicaBehind], uint64(50))
	require.Eventually(t, func() bool {
		_, onReplica, err := s.read(pooldriver.Replica(ctx), db, 1)
		require.NoError(t, err)
		return onReplica
	}, 20*time.Second, 10*time.Millisecond, "the replica serves when it has the write")
}

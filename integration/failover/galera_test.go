package failover

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestNoAcknowledgedCommitIsLostWhenAGaleraClusterLosesNodes takes nodes from a
// cluster of three under the load of 50 tasks. The first node of the DSN is the
// one that is lost.
func TestNoAcknowledgedCommitIsLostWhenAGaleraClusterLosesNodes(t *testing.T) {
	cluster := testbed.StartGalera(t)
	first, second, third := cluster.Nodes[0], cluster.Nodes[1], cluster.Nodes[2]

	t.Run("a node is killed and returns", func(t *testing.T) {
		s := startOnCluster(t, cluster)
		killed := time.Now()
		first.Kill(t)
		cluster.WaitSize(t, second, 2)
		noticed := time.Now()
		s.load.waitForAll(t, noticed)

		cluster.Return(t, first)
		s.waitUsed(t, first)
		s.load.waitForAll(t, time.Now())
		s.requireBack(t, second, killed, noticed)
		s.requireKept(t, cluster.Nodes[:]...)
	})

	t.Run("a node is cut off from the others and refuses its clients", func(t *testing.T) {
		s := startOnCluster(t, cluster)
		cut := time.Now()
		cluster.Isolate(t, first)
		cluster.WaitSize(t, second, 2)
		noticed := time.Now()
		s.load.waitForAll(t, noticed)
		require.Eventually(t, func() bool { return s.connections(t, first) == 0 }, onThisMachine(t, s.account.On(second)), pause, "connections to a node that refuses all statements")

		cluster.Reunite(t, first)
		s.waitUsed(t, first)
		s.load.waitForAll(t, time.Now())
		s.requireBack(t, second, cut, noticed)
		s.requireKept(t, cluster.Nodes[:]...)
	})

	t.Run("the majority is killed and an administrator has the last node go on", func(t *testing.T) {
		s := startOnCluster(t, cluster)
		killed := time.Now()
		first.Kill(t)
		second.Kill(t)
		cluster.WaitRefusing(t, third)
		time.Sleep(time.Duration(randomtest.Rounds(1, 10)) * time.Second)
		cluster.GoOnAlone(t, third)
		again := time.Now()
		s.load.waitForAll(t, again)
		s.requireBack(t, third, killed, again)
		// A node acknowledges what all have received. That all have, the last one
		// may not have heard yet: then a minority drops it. What an administrator
		// takes upon himself is that moment, and nothing older or newer.
		for _, lost := range s.load.outcome().requireKeptBut(t, s.caughtUp(t, third)) {
			t.Logf("%s was acknowledged %v before the first node was killed, and is lost", lost.transfer, killed.Sub(lost.at))
			require.WithinRange(t, lost.at, killed.Add(-lastMoment), again)
		}
	})
}

// lastMoment is how old the last messages of a node can be that others have not
// confirmed to each other.
const lastMoment = time.Second

// onCluster is the load of one account on a cluster.
type onCluster struct {
	account   testbed.Account
	connector *pooldriver.Connector
	load      *load
}

// startOnCluster returns when all tasks are served, by the first node.
func startOnCluster(t *testing.T, cluster *testbed.Galera) *onCluster {
	t.Helper()
	account := cluster.NewAccount(t)
	create(t, account.On(cluster.Nodes[0]))
	// Connections are made anew all the time: the first node that will do has them.
	connector := pooldriver.New(account.URL("target_session_attrs=read-write", "pool_max_conns=20", "pool_max_conn_lifetime=1s"), logged(t))
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s := &onCluster{account: account, connector: connector, load: startLoad(t, db, ledger.Question, longPatience)}
	s.load.waitForAll(t, time.Now())
	s.waitUsed(t, cluster.Nodes[0])
	time.Sleep(time.Second) // of work before the failure
	return s
}

// connections counts those of the account on a node, which may refuse all but
// dirty reads.
func (s *onCluster) connections(t *testing.T, node *testbed.Server) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	admin, err := node.Admin()
	require.NoError(t, err)
	conn, err := admin.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(ctx, "SET SESSION wsrep_dirty_reads = ON")
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.processlist WHERE user = ? AND db IS NOT NULL", s.account.User).Scan(&n))
	return n
}

// waitUsed returns when the node has connections of the account.
func (s *onCluster) waitUsed(t *testing.T, node *testbed.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return s.connections(t, node) > 5 }, settleWithin, pause, "the node is not used")
}

// requireBack ends the load. node serves.
func (s *onCluster) requireBack(t *testing.T, node *testbed.Server, lost, again time.Time) {
	t.Helper()
	within := onThisMachine(t, s.account.On(node))
	s.load.end()
	first, all := s.load.back(again)
	stats := s.connector.Stats()
	t.Logf("the cluster was ready %v after the loss; the first commit %v later, all %d tasks %v; dial errors %d, wrong roles %d",
		again.Sub(lost).Round(time.Millisecond), first.Round(time.Millisecond), tasks, all.Round(time.Millisecond), stats.DialErrors, stats.WrongRoles)
	require.Less(t, all, within)
}

// requireKept asks each of the nodes.
func (s *onCluster) requireKept(t *testing.T, nodes ...*testbed.Server) {
	t.Helper()
	for _, node := range nodes {
		s.load.outcome().requireKept(t, s.caughtUp(t, node))
	}
}

// caughtUp returns a witness that sees all that the cluster has committed.
func (s *onCluster) caughtUp(t *testing.T, node *testbed.Server) *sql.DB {
	t.Helper()
	db := s.account.On(node).Witness(t)
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(t.Context(), "SET SESSION wsrep_sync_wait = 1")
	require.NoError(t, err)
	return db
}

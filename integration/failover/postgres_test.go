package failover

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// backWithin is how long after a promotion every task is to be served, on a machine that has time for it.
const backWithin = 2 * time.Second

// onThisMachine returns backWithin, and more on a machine that is slow or busy: there it adds fifty times what the
// longest of ten logins by the bare driver takes beyond that of a machine that has time. It is called beside the load.
func onThisMachine(t *testing.T, account testbed.Account) time.Duration {
	t.Helper()
	const usual = 15 * time.Millisecond
	longest := usual
	for range 10 {
		began := time.Now()
		db := account.OpenBare(t)
		require.NoError(t, db.PingContext(t.Context()))
		longest = max(longest, time.Since(began))
		require.NoError(t, db.Close())
	}
	return backWithin + 50*(longest-usual)
}

// onPair is the load of one account on a pair of servers.
type onPair struct {
	*testbed.PostgresPair
	account   testbed.Account
	connector *pooldriver.Connector
	load      *load
}

// startOnPair returns when all tasks are served.
func startOnPair(t *testing.T, patience time.Duration, parameters ...string) *onPair {
	t.Helper()
	p := &onPair{PostgresPair: testbed.StartPostgresPair(t)}
	p.account = p.NewAccount(t)
	create(t, p.account.On(p.Primary))
	p.connector = pooldriver.New(p.account.URL(append([]string{"target_session_attrs=read-write", "pool_max_conns=20"}, parameters...)...), logged(t))
	db := sql.OpenDB(p.connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	p.load = startLoad(t, db, ledger.Dollar, patience)
	p.load.waitForAll(t, time.Now())
	return p
}

// TestNoAcknowledgedCommitIsLostWhenTheStandbyIsPromoted kills the primary under
// the load of 50 tasks, promotes the standby, and returns the old primary as a
// standby; then the same the other way round.
func TestNoAcknowledgedCommitIsLostWhenTheStandbyIsPromoted(t *testing.T) {
	// Connections are made anew all the time: a wrong server shows.
	p := startOnPair(t, longPatience, "pool_max_conn_lifetime=1s")
	var promotions []time.Time
	for round := range randomtest.Rounds(2, 8) {
		time.Sleep(time.Second) // of work before the failure
		old := p.Primary
		killed := time.Now()
		old.Kill(t)
		time.Sleep(time.Second << (round % 4)) // somebody has to notice
		p.Promote(t)
		promoted := time.Now()
		promotions = append(promotions, promoted)
		p.load.waitForAll(t, promoted)

		// In the first round the old primary is the first server of the DSN: it is
		// asked what it is, and left.
		p.Return(t)
		returned := time.Now()
		watch := p.account.On(old).Watch(t)
		for time.Since(returned) < 3*time.Second {
			requireNoneOn(t, p.account.On(old), time.Second)
			time.Sleep(pause)
		}
		p.load.waitForAll(t, time.Now())
		peak := watch.Stop()
		t.Logf("promoted %v after the kill; after the return of the old primary at most %d connections there, at %d looks",
			promoted.Sub(killed).Round(time.Millisecond), peak.Backends, peak.Samples)
		counted, _, err := p.account.On(p.Primary).Backends(t.Context())
		require.NoError(t, err)
		require.Positive(t, counted)
	}
	within := onThisMachine(t, p.account.On(p.Primary))
	p.load.end()
	requireNoneOn(t, p.account.On(p.Standby), 0)
	p.load.outcome().requireKept(t, p.account.On(p.Primary).Witness(t))
	for _, promoted := range promotions {
		first, all := p.load.back(promoted)
		t.Logf("the first commit %v after the promotion, all %d tasks %v", first.Round(time.Millisecond), tasks, all.Round(time.Millisecond))
		require.Less(t, all, within)
	}
}

// TestAStandbyInPlaceOfAPrimaryThatHangsServesAfterTwoTimeouts has the primary stop
// answering, with all of its connections open, and stay so. What a task waits for
// then, only its own context ends; a place in the pool is free when the server has
// let go of its connection, or after five seconds; and the dial that follows has
// to find out that the first server of the DSN does not answer.
func TestAStandbyInPlaceOfAPrimaryThatHangsServesAfterTwoTimeouts(t *testing.T) {
	const patience, orphaned, connect = 2 * time.Second, 5 * time.Second, 2 * time.Second
	p := startOnPair(t, patience, "pool_connect_timeout="+connect.String())
	old := p.Primary
	paused := time.Now()
	old.Pause(t)
	p.Promote(t)
	promoted := time.Now()
	p.load.waitForAll(t, promoted)
	within := onThisMachine(t, p.account.On(p.Primary))
	p.load.end()
	first, all := p.load.back(promoted)
	t.Logf("promoted %v after the primary hung; the first commit %v later, all %d tasks %v; %d connections were given up",
		promoted.Sub(paused).Round(time.Millisecond), first.Round(time.Millisecond), tasks, all.Round(time.Millisecond), p.connector.Stats().Orphans)
	p.load.outcome().requireKept(t, p.account.On(p.Primary).Witness(t))
	require.Less(t, all, patience+orphaned+connect+within)
	old.Kill(t)
}

// requireNoneOn: a server has no connection of the account's that is older than
// that.
func requireNoneOn(t *testing.T, account testbed.Account, age time.Duration) {
	t.Helper()
	admin, err := account.Server.Admin()
	require.NoError(t, err)
	var n int
	require.NoError(t, admin.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE usename = $1 AND backend_type = 'client backend' AND backend_start <= clock_timestamp() - make_interval(secs => $2)`,
		account.User, age.Seconds()).Scan(&n))
	require.Zero(t, n, "connections on the old primary")
}

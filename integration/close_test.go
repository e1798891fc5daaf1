package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestCloseEndsHealthyConnectionsAtOnce closes twenty idle connections of a
// server that answers, and asks the server what is left.
func TestCloseEndsHealthyConnectionsAtOnce(t *testing.T) {
	const conns = 20
	testbed.EachInTurn(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		plain := account.OpenBare(t)
		plain.SetMaxIdleConns(conns)
		openAll(t, plain, conns)
		began := time.Now()
		require.NoError(t, plain.Close())
		t.Logf("plain database/sql: %v", time.Since(began).Round(10*time.Microsecond))

		took := time.Hour
		const atOnce = 50 * time.Millisecond
		for try := 0; try < mostTries && (try < 3 || took >= atOnce); try++ { // other processes use the machine, too
			pool := s.openURL(t, s.url("pool_max_conns=20"))
			openAll(t, pool.DB, conns)
			began := time.Now()
			require.NoError(t, pool.Close())
			once := time.Since(began)
			require.Eventually(t, func() bool {
				left, err := s.backends(t.Context())
				return err == nil && len(left) == 0
			}, 10*time.Second, time.Millisecond, "connections that the server has")
			gone := time.Since(began)
			t.Logf("pooldriver: %v, the server has none after %v", once.Round(10*time.Microsecond), gone.Round(time.Millisecond))
			took = min(took, once)
		}
		require.Less(t, took, atOnce)
	})
}

// openAll makes n connections, which are idle when it returns.
func openAll(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	conns := make([]*sql.Conn, n)
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conns[i].PingContext(t.Context()))
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
}

// TestCloseDoesNotWaitForAServerThatHangs closes idle connections, and one in use.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel() // each has a server of its own, and nothing else runs beside the two
			server := testbed.Start(t, engine, testbed.WithRestart())
			account := server.NewAccount(t)
			s := stage{name: engine.String(), account: account}
			idle, busy := s.openURL(t, s.url("pool_max_conns=20")), s.openURL(t, s.url("pool_max_conns=20"))
			openAll(t, idle.DB, 20)
			openAll(t, busy.DB, 20)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			executed := make(chan error, 1)
			go func() {
				_, err := busy.ExecContext(ctx, sleepFor(engine, time.Hour))
				executed <- err
			}()
			require.Eventually(t, func() bool { return busy.lent() == 1 }, 10*time.Second, time.Millisecond)
			pulse := feelPulse(t, nil) // the server stands still
			server.Pause(t)
			cancel()
			require.Error(t, <-executed)
			for _, p := range []struct {
				name  string
				pool  stagePool
				limit time.Duration
			}{{"idle ones", idle, 800 * time.Millisecond}, {"and one whose statement was cancelled", busy, 2 * time.Second}} {
				_ = pulse.late()
				began := time.Now()
				require.NoError(t, p.pool.Close())
				took := time.Since(began)
				t.Logf("%s: %v", p.name, took.Round(time.Millisecond))
				require.Less(t, took, p.limit+2*pulse.late(), p.name)
			}
			server.Kill(t)
			server.Start(t)
		})
	}
}

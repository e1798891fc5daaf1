package integration

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// allowed is how many connections the server allows the accounts of these tests.
const allowed = 4

// fullStage is a pool of 20 connections on a server that has room for fewer.
func fullStage(t *testing.T, account testbed.Account) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	account.LimitConnections(t, allowed)
	connector := pooldriver.New(account.URL("pool_max_conns=20"), quiet)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return connector, db
}

var sleeps = map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(0.05)", testbed.MySQL: "DO SLEEP(0.05)"}

// TestOnAFullServerStatementsWaitForWhatIsOpen: 200 statements of 50 ms at once are served by
// the four connections that the server has room for.
func TestOnAFullServerStatementsWaitForWhatIsOpen(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		connector, db := fullStage(t, account)
		began := time.Now()
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if _, err := db.ExecContext(t.Context(), sleeps[account.Server.Engine]); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s := connector.Stats().Pool
		require.Equal(t, allowed, s.Allowed)
		require.LessOrEqual(t, s.Creates, uint64(allowed))
		// The first burst, and one a second.
		require.Less(t, s.CreateErrors, uint64(30+time.Since(began)/time.Second))
	})
}

// TestNestedLoopsOnAFullServerDoNotWaitForTheTimeout: who holds what the server allows is asked
// to share it, as if it were pool_max_conns.
func TestNestedLoopsOnAFullServerDoNotWaitForTheTimeout(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		account.LimitConnections(t, allowed)
		db := sql.OpenDB(pooldriver.New(account.URL("pool_max_conns=20", "pool_acquire_timeout=10m"), quiet))
		t.Cleanup(func() { _ = db.Close() })
		began := time.Now()
		var all sync.WaitGroup
		for range 3 * allowed {
			all.Go(func() {
				rows, err := db.QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
				if err != nil {
					t.Error(err)
					return
				}
				defer rows.Close()
				for rows.Next() {
					if _, err := db.ExecContext(t.Context(), sleeps[account.Server.Engine]); err != nil {
						t.Error(err)
					}
				}
				if err := rows.Err(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Less(t, time.Since(began), slowMachine, "pool_acquire_timeout is 10 min")
	})
}

package integration

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// docs/incidents.md has the public incidents of these tests. Each has the original's shape, on
// plain database/sql and on us.

// bothPools opens a database with at most so many connections, plainly and through us.
func bothPools(t *testing.T, account testbed.Account, most int, parameters ...string) (plain, ours *sql.DB, c *pooldriver.Connector) {
	t.Helper()
	plain = account.OpenBare(t)
	plain.SetMaxOpenConns(most)
	plain.SetMaxIdleConns(most)
	c = pooldriver.New(account.URL(parameters...), quiet, func(c *pooldriver.Config) { c.MaxConns = most })
	ours = sql.OpenDB(c)
	t.Cleanup(func() { _ = ours.Close() })
	return plain, ours, c
}

// TestIncidentATransactionInsideARowsLoop: the only connection is held by the loop that waits for it.
func TestIncidentATransactionInsideARowsLoop(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		plain, ours, c := bothPools(t, account, 1)
		_, err := ours.Exec("CREATE TABLE stalls (n INT)")
		require.NoError(t, err)
		sweep := func(db *sql.DB, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			rows, err := db.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "INSERT INTO stalls VALUES (1)"); err != nil {
					return err
				}
				if err := tx.Commit(); err != nil {
					return err
				}
			}
			return rows.Err()
		}
		require.ErrorIs(t, sweep(plain, time.Second), context.DeadlineExceeded, "without the deadline it would hang for ever")
		require.NoError(t, sweep(ours, time.Minute))
		require.NotZero(t, c.Stats().Reclaims)
		require.NoError(t, plain.Close())
	})
}

// TestIncidentCancelledStatementsOpenMoreAndMoreConnections: the driver gives a connection up at
// once, and the server is not done with it.
func TestIncidentCancelledStatementsOpenMoreAndMoreConnections(t *testing.T) {
	t.Parallel()
	const most = 4
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		plain, ours, _ := bothPools(t, account, most)
		storm := func(db *sql.DB, patience time.Duration) (highest int) {
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(randomtest.Rounds(1, 3))*time.Second+2*patience)
			defer stop()
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for ctx.Err() == nil {
						impatient, cancel := context.WithTimeout(ctx, patience)
						_, _ = db.ExecContext(impatient, sleep[account.Server.Engine])
						cancel()
					}
				})
			}
			for ctx.Err() == nil {
				counted, _, err := account.Backends(t.Context())
				require.NoError(t, err)
				highest = max(highest, counted)
				time.Sleep(5 * time.Millisecond)
			}
			all.Wait()
			return highest
		}
		const soon = 30 * time.Millisecond
		of := storm(ours, soon)
		require.NoError(t, ours.Close())
		require.LessOrEqual(t, of, most)
		plainly := storm(plain, soon)
		for patience := 2 * soon; account.Server.Engine == testbed.MySQL && plainly <= most && patience < 10*time.Second; patience *= 2 {
			plainly = storm(plain, patience) // a slow server had not come to the statements
		}
		t.Logf("sessions at most, of %d: ours %d, plain %d", most, of, plainly)
		if account.Server.Engine == testbed.MySQL {
			require.Greater(t, plainly, most)
		}
	})
}

// TestIncidentWaitersThatGaveUpTakeNoConnectionWithThem: a pool that gives connections to callers
// who have gone has none left in the end.
func TestIncidentWaitersThatGaveUpTakeNoConnectionWithThem(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		_, ours, c := bothPools(t, account, 3)
		for range 5 {
			var held []*sql.Conn
			for range 3 {
				conn, err := ours.Conn(t.Context())
				require.NoError(t, err)
				require.NoError(t, conn.PingContext(t.Context()))
				held = append(held, conn)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			for range 50 {
				waiting.Go(func() { _ = ours.PingContext(ctx) })
			}
			require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == 50 }, slowMachine, time.Millisecond)
			go cancel() // all at the moment when connections come back
			for _, conn := range held {
				require.NoError(t, conn.Close())
			}
			waiting.Wait()
		}
		require.Eventually(t, func() bool { return c.Stats().Pool.Lent == 0 }, slowMachine, time.Millisecond)
		for range 3 { // none is lost; one whose ping was cancelled was replaced
			conn, err := ours.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.PingContext(t.Context()))
		}
	})
}

// TestIncidentASettingReachesTheNextTenant: nothing sets back what a request has set.
func TestIncidentASettingReachesTheNextTenant(t *testing.T) {
	t.Parallel()
	set := map[testbed.Engine]string{testbed.Postgres: "SET search_path TO acme", testbed.MySQL: "SET @tenant = 'acme'"}
	show := map[testbed.Engine]string{testbed.Postgres: "SELECT current_setting('search_path')", testbed.MySQL: "SELECT COALESCE(@tenant, 'none')"}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		plain, ours, _ := bothPools(t, account, 1)
		tenant := func(db *sql.DB) (seen string) {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), set[account.Server.Engine])
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.NoError(t, db.QueryRow(show[account.Server.Engine]).Scan(&seen)) // the next request
			return seen
		}
		require.Equal(t, "acme", tenant(plain))
		require.NotContains(t, tenant(ours), "acme")
	})
}

// TestIncidentAServerThatIsFullFailsStatementsThatOpenConnectionsCouldServe: each error is one that
// a moment of patience would have spared.
func TestIncidentAServerThatIsFullFailsStatementsThatOpenConnectionsCouldServe(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		account.LimitConnections(t, allowed)
		plain, ours, c := bothPools(t, account, 20)
		failed := func(db *sql.DB) (n int64) {
			var errs atomic.Int64
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if _, err := db.ExecContext(t.Context(), sleeps[account.Server.Engine]); err != nil && !errors.Is(err, context.Canceled) {
						errs.Add(1)
					}
				})
			}
			all.Wait()
			return errs.Load()
		}
		require.NotZero(t, failed(plain))
		require.NoError(t, plain.Close())
		require.Eventually(t, func() bool {
			n, _, err := account.Backends(t.Context())
			return err == nil && n == 0
		}, slowMachine, 10*time.Millisecond)
		require.Zero(t, failed(ours))
		require.Equal(t, allowed, c.Stats().Pool.Allowed)
	})
}

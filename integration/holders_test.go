package integration

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// askSession are an engine's questions: for the number of the session that asks, and whether
// the server lists a session of that number.
var askSession = map[testbed.Engine]struct{ own, listed string }{
	testbed.Postgres: {"SELECT pg_backend_pid()", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'idle in transaction'"},
	testbed.MySQL:    {"SELECT CONNECTION_ID()", "SELECT count(*) FROM information_schema.processlist WHERE id = ? AND command = 'Sleep'"},
}

// plantIdleTransaction begins a transaction and leaves it idle.
func plantIdleTransaction(t *testing.T, ctx context.Context, db *sql.DB) (tx *sql.Tx) {
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "SELECT 1")
	require.NoError(t, err)
	return tx
}

// TestAHolderIsTheSessionThatTheServerShows: the number is the server's, by what the
// session itself says and by the server's list.
func TestAHolderIsTheSessionThatTheServerShows(t *testing.T) {
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		connector := pooldriver.New(account.URL("pool_max_conns=3", "pool_sample_stacks=1"))
		db := sql.OpenDB(connector)
		defer db.Close()
		engine := askSession[account.Server.Engine]
		ctx := pooldriver.Label(t.Context(), "GET /orders/{id}")
		tx := plantIdleTransaction(t, ctx, db)
		var own uint64
		require.NoError(t, tx.QueryRowContext(ctx, engine.own+" /* s3cr3t */").Scan(&own))
		other, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.PingContext(t.Context()))

		var holders []pooldriver.Holder
		inTime(t, time.Second, func() time.Duration {
			begun := time.Now()
			holders = connector.Holders()
			return time.Since(begun)
		})
		require.Len(t, holders, 2)
		h := holders[0]
		require.Equal(t, own, h.ProcessID)
		require.NotZero(t, holders[1].ProcessID)
		require.NotEqual(t, own, holders[1].ProcessID)
		statements := uint64(3)
		if account.Server.Engine == testbed.Postgres {
			statements = 2 // BEGIN was sent with the first
		}
		require.Equal(t, []any{pooldriver.PinTransaction, "GET /orders/{id}", engine.own, false, statements},
			[]any{h.Pin, h.Label, h.Statement, h.Running, h.Statements})
		require.Equal(t, pooldriver.PinConn, holders[1].Pin)
		require.True(t, strings.HasSuffix(h.TakenAt[0].Func, ".plantIdleTransaction"), h.TakenAt[0].Func)
		require.True(t, strings.HasSuffix(h.TakenAt[0].File, "holders_test.go"))
		require.True(t, strings.HasSuffix(h.StatementAt[0].File, "holders_test.go"))
		witness := account.Witness(t)
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, witness.QueryRowContext(t.Context(), engine.listed, h.ProcessID).Scan(&n))
			return n == 1
		}, slowMachine, 5*time.Millisecond)
		require.NoError(t, other.Close())
		require.NoError(t, tx.Rollback())
		require.Empty(t, connector.Holders())
	})
}

// TestAStatementThatHangsIsSeenWithItsSession: the statement holds every lock that it can.
func TestAStatementThatHangsIsSeenWithItsSession(t *testing.T) {
	sleep := map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(60)", testbed.MySQL: "SELECT SLEEP(60)"}
	outline := map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(?)", testbed.MySQL: "SELECT SLEEP(?)"}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		connector := pooldriver.New(account.URL("pool_max_conns=1"))
		db := sql.OpenDB(connector)
		defer db.Close()
		ctx, cancel := context.WithCancel(t.Context())
		hangs := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(ctx, sleep[account.Server.Engine])
			hangs <- err
		}()
		var h []pooldriver.Holder
		require.Eventually(t, func() bool {
			h = connector.Holders()
			return len(h) == 1 && h[0].Running && h[0].Pin == pooldriver.PinStatement
		}, 10*time.Second, time.Millisecond)
		require.Equal(t, outline[account.Server.Engine], h[0].Statement)
		require.NotZero(t, h[0].ProcessID)
		cancel()
		require.Error(t, <-hangs)
	})
}

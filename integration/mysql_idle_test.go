package integration

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestMySQLAStatementThatMeetsTheServersIdleTimeoutRunsOnAnotherConnection: the server has ended
// the connection, and its word for that is still on its way when the statement leaves. It
// says that the connection was idle, so the statement was not executed.
func TestMySQLAStatementThatMeetsTheServersIdleTimeoutRunsOnAnotherConnection(t *testing.T) {
	t.Parallel()
	if testbed.MySQL == testbed.MariaDB {
		t.Skip("MariaDB closes an idle connection without a word: whether the statement was executed is not known")
	}
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	owner := account.OpenBare(t)
	_, err := owner.Exec("CREATE TABLE ledger (id integer)")
	require.NoError(t, err)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	proxy.SetLatency(byteproxy.ToClient, 300*time.Millisecond)
	connector := pooldriver.New(account.Via(proxy.Addr()).URL("pool_max_conns=8", "wait_timeout=1"), quiet)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	var all sync.WaitGroup
	var written atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := range 4 {
				if _, err := db.ExecContext(t.Context(), "INSERT INTO ledger VALUES (1)"); err != nil {
					t.Errorf("statement %d: %v", i, err)
					continue
				}
				written.Add(1)
				time.Sleep(850 * time.Millisecond) // the server's second is over while its word is on its way
			}
		})
	}
	all.Wait()
	var stored int64
	require.NoError(t, owner.QueryRow("SELECT count(*) FROM ledger").Scan(&stored))
	require.Equal(t, written.Load(), stored)
	require.Positive(t, connector.Stats().Retries, "no statement has met the timeout")
}

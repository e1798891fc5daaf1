package integration

import (
	"database/sql"
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
	witness := account.Witness(t)
	_, err := witness.Exec("CREATE TABLE ledger (id integer)")
	require.NoError(t, err)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	connector := pooldriver.New(account.Via(proxy.Addr()).URL("pool_max_conns=1", "wait_timeout=1"), quiet)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	write := func() {
		_, err := db.ExecContext(t.Context(), "INSERT INTO ledger VALUES (1)")
		require.NoError(t, err)
	}
	const rounds = 3
	for range rounds {
		write()
		proxy.HoldAnswers() // the goodbye that comes will be late
		require.Eventually(t, func() bool {
			backends, _, err := account.Backends(t.Context())
			return err == nil && backends == 0
		}, time.Minute, 10*time.Millisecond, "the server keeps an idle connection")
		write()
	}
	var stored int
	require.NoError(t, witness.QueryRow("SELECT count(*) FROM ledger").Scan(&stored))
	require.Equal(t, 2*rounds, stored)
	require.Positive(t, connector.Stats().Retries, "no statement has met the timeout")
}

package integration

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestPostgresAStatementWithSettingsWaitsItsTurnAmongNotifications: they come at any time, and
// the settings go in front of the statement only between two of the server's messages.
func TestPostgresAStatementWithSettingsWaitsItsTurnAmongNotifications(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := sql.OpenDB(pooldriver.New(account.URL("pool_max_conns=1"), quiet))
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "LISTEN storm")
	require.NoError(t, err)

	storm, calm := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer calm()
	sender := account.OpenBare(t)
	for range 4 {
		all.Go(func() {
			for storm.Err() == nil {
				_, _ = sender.ExecContext(storm, "SELECT pg_notify('storm', $1)", strings.Repeat("x", 7900))
			}
		})
	}
	ctx := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "7"})
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		var tenant string
		require.NoError(t, conn.QueryRowContext(ctx, "SELECT current_setting('app.tenant')").Scan(&tenant))
		require.Equal(t, "7", tenant)
	}
}

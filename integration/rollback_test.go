package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestMySQLALargeRollbackIsNotCut: pool_clean_timeout bounds what the pool does for itself,
// and not the program's own Rollback, which MySQL and MariaDB take long for.
func TestMySQLALargeRollbackIsNotCut(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	for _, wrap := range []bool{false, true} {
		options := []pooldriver.Option{quiet, func(c *pooldriver.Config) { c.CleanTimeout = 2 * time.Millisecond }}
		c := pooldriver.New(account.URL(), options...)
		if wrap {
			c = pooldriver.Wrap(connectorOf(t, account), options...)
		}
		db := sql.OpenDB(c)
		defer db.Close()
		digits := strings.Repeat("SELECT 1 UNION ALL ", 9) + "SELECT 1"
		mustExec(t, db, "CREATE TABLE IF NOT EXISTS big (a VARCHAR(100))")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		var before, after int
		require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&before))
		_, err = tx.Exec(fmt.Sprintf("INSERT INTO big SELECT REPEAT('x', 100) FROM (%[1]s) a, (%[1]s) b, (%[1]s) c, (%[1]s) d", digits))
		require.NoError(t, err)
		begun := time.Now()
		require.NoError(t, tx.Rollback())
		took := time.Since(begun)
		require.Greater(t, took, 4*time.Millisecond, "else the test tests nothing")
		require.NoError(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&after))
		require.Equal(t, before, after, "the connection was cut after a rollback of %v", took)
	}
}

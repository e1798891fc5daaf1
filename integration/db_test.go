package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// TestARowThatNobodyScansLeavesTheServerWhenItsContextEnds: the server is in the middle of a large result, and
// the pool has one connection.
func TestARowThatNobodyScansLeavesTheServerWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		db := s.open(t, 1)
		db.SetMaxOpenConns(1)
		db.mustExec(t.Context(), t, "INSERT INTO ledger WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n FROM s")
		atWork := func() (n int) {
			require.NoError(t, s.witness.QueryRowContext(t.Context(), s.say(
				"SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query LIKE 'SELECT REPEAT%'",
				"SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_user = ? AND processlist_info LIKE 'SELECT REPEAT%'", "",
			), s.account.User).Scan(&n))
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		row := pooldriver.DB{DB: db.DB}.QueryRowContext(ctx, "SELECT REPEAT('x', 10000) FROM ledger a CROSS JOIN ledger b CROSS JOIN ledger c")
		require.NoError(t, row.Err())
		require.Equal(t, 1, atWork())

		cancel()
		require.Equal(t, 1000, db.count(t.Context(), t))
		require.Eventually(t, func() bool { return atWork() == 0 }, 10*time.Second, 10*time.Millisecond)
		require.ErrorIs(t, row.Scan(new(string)), context.Canceled)
		require.Eventually(t, func() bool { return db.lent() == 0 && db.Stats().InUse == 0 }, 10*time.Second, 10*time.Millisecond)
	})
}

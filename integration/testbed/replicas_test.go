package testbed_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestAReplicaThatIsHeldShowsTheOldRow(t *testing.T) {
	t.Parallel()
	engines := map[string]testbed.Engine{"postgres": testbed.Postgres, "mariadb": testbed.MariaDB}
	if testbed.HasMySQL() {
		engines["mysql"] = testbed.OracleMySQL
	}
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := testbed.StartReplicaSet(t, engine)
			account := set.NewAccount(t)
			primary := account.OpenBare(t)
			replicas := [2]*sql.DB{account.On(set.Replicas[0]).OpenBare(t), account.On(set.Replicas[1]).OpenBare(t)}
			write(t, primary, "CREATE TABLE counter (n integer)", "INSERT INTO counter VALUES (1)")
			set.CatchUp(t)
			for _, replica := range replicas {
				require.Equal(t, 1, counter(t, replica))
				_, err := replica.ExecContext(t.Context(), "UPDATE counter SET n = 7")
				require.Error(t, err, "a replica takes no writes")
			}

			require.NoError(t, set.Replicas[0].Hold(t.Context()))
			write(t, primary, "UPDATE counter SET n = 2")
			require.Eventually(t, func() bool { return counter(t, replicas[1]) == 2 }, time.Minute, time.Millisecond)
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 1, counter(t, replicas[0]))
			require.NoError(t, set.Replicas[0].Release(t.Context()))
			require.NoError(t, set.Replicas[0].Release(t.Context()), "a second time")
			require.Eventually(t, func() bool { return counter(t, replicas[0]) == 2 }, time.Minute, time.Millisecond)
		})
	}
}

func TestAReplicaThatIsPromotedTakesWritesAndIsFollowed(t *testing.T) {
	t.Parallel()
	set := testbed.StartReplicaSet(t, testbed.Postgres)
	account := set.NewAccount(t)
	write(t, account.OpenBare(t), "CREATE TABLE counter (n integer)", "INSERT INTO counter VALUES (1)")
	set.CatchUp(t)
	require.NoError(t, set.Replicas[0].Hold(t.Context()))
	write(t, account.OpenBare(t), "UPDATE counter SET n = 2")
	old := set.Primary
	// The second replica does not receive this.
	stopped, err := set.Replicas[1].Admin()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return counter(t, account.On(set.Replicas[1]).OpenBare(t)) == 2 }, time.Minute, 10*time.Millisecond)
	write(t, stopped, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, stopped.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_wal_receiver").Scan(&n))
		return n == 0
	}, time.Minute, 10*time.Millisecond)
	write(t, account.OpenBare(t), "UPDATE counter SET n = 3")
	require.Eventually(t, func() (received bool) {
		admin, err := set.Replicas[0].Admin()
		require.NoError(t, err)
		primary, err := old.Admin()
		require.NoError(t, err)
		var lsn string
		require.NoError(t, primary.QueryRowContext(t.Context(), "SELECT pg_current_wal_flush_lsn()").Scan(&lsn))
		require.NoError(t, admin.QueryRowContext(t.Context(), "SELECT pg_last_wal_receive_lsn() >= $1::pg_lsn", lsn).Scan(&received))
		return received
	}, time.Minute, 10*time.Millisecond)
	old.Kill(t)

	next := set.Foremost(t)
	require.Same(t, set.Replicas[0], next)
	require.Equal(t, 3, counter(t, account.On(next).OpenBare(t)))
	other := set.Replicas[1]
	set.Promote(t, next)
	require.Same(t, next, set.Primary)
	require.Equal(t, [2]*testbed.Server{old, other}, set.Replicas)
	write(t, account.On(next).OpenBare(t), "UPDATE counter SET n = 4")
	require.Eventually(t, func() bool { return counter(t, account.On(other).OpenBare(t)) == 4 }, time.Minute, 10*time.Millisecond)
}

func write(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

func counter(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT n FROM counter").Scan(&n))
	return n
}

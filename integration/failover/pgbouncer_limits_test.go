package failover

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestWhatPgBouncerInTransactionModeDoesNotCarry shows why docs/servers.md says which
// settings a program needs behind PgBouncer, and what it has to do without. No
// driver can do better: a statement outside of a transaction goes to whichever
// server connection is free.
func TestWhatPgBouncerInTransactionModeDoesNotCarry(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	account := server.NewAccount(t)
	// With one server connection, whatever one client leaves the next one finds.
	open := func(t *testing.T, bouncer *testbed.PgBouncer, parameters ...string) *sql.DB {
		t.Helper()
		db := sql.OpenDB(pooldriver.New(account.Via(bouncer.Addr).URL(append([]string{"pool_max_conns=2"}, parameters...)...), logged(t)))
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	setting := func(t *testing.T, db *sql.DB) string {
		t.Helper()
		var value sql.NullString
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT current_setting('pooldriver.mine', true)").Scan(&value))
		return value.String
	}

	t.Run("session state that a task sets reaches others", func(t *testing.T) {
		t.Parallel()
		bouncer := testbed.StartPgBouncer(t, account, "default_pool_size=1")
		one, other := open(t, bouncer, "pool_reset=off"), open(t, bouncer, "pool_reset=off")
		set(t, one)
		require.Equal(t, "one's", setting(t, other))
	})

	t.Run("server_reset_query_always keeps it from them, and from the task", func(t *testing.T) {
		t.Parallel()
		bouncer := testbed.StartPgBouncer(t, account, "default_pool_size=1", "max_prepared_statements=20",
			"server_reset_query=DISCARD ALL", "server_reset_query_always=1")
		one, other := open(t, bouncer, "pool_reset=off"), open(t, bouncer, "pool_reset=off")
		for range 20 { // prepared statements survive it: PgBouncer prepares them again
			set(t, one)
			require.Empty(t, setting(t, other))
			require.Empty(t, setting(t, one))
		}
	})

	t.Run("without PgBouncer's prepared statements pgx's default mode fails", func(t *testing.T) {
		t.Parallel()
		bouncer := testbed.StartPgBouncer(t, account, "default_pool_size=1", "max_prepared_statements=0")
		query := func(db *sql.DB) error {
			var n int
			return db.QueryRowContext(t.Context(), "SELECT $1::integer", 1).Scan(&n)
		}
		one, other := open(t, bouncer), open(t, bouncer)
		require.NoError(t, query(one))
		var refused *pgconn.PgError
		require.ErrorAs(t, query(other), &refused)
		require.Equal(t, "42P05", refused.Code, "it has a statement of that name")
		for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
			one, other := open(t, bouncer, "default_query_exec_mode="+mode), open(t, bouncer, "default_query_exec_mode="+mode)
			require.NoError(t, query(one), mode)
			require.NoError(t, query(other), mode)
		}
		// database/sql's own have names in every mode.
		prepared, err := open(t, bouncer, "default_query_exec_mode=exec").PrepareContext(t.Context(), "SELECT 'one'")
		require.NoError(t, err)
		defer prepared.Close()
		_, err = open(t, bouncer, "default_query_exec_mode=exec").PrepareContext(t.Context(), "SELECT 'one'")
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "42P05", refused.Code)
	})

	t.Run("parameters that PgBouncer does not know are refused by their names", func(t *testing.T) {
		t.Parallel()
		bouncer := testbed.StartPgBouncer(t, account)
		err := open(t, bouncer, "search_path=elsewhere").PingContext(t.Context())
		require.ErrorContains(t, err, "unsupported startup parameter: search_path")
		ignoring := testbed.StartPgBouncer(t, account, "ignore_startup_parameters=search_path")
		var path string
		require.NoError(t, open(t, ignoring, "search_path=elsewhere").QueryRowContext(t.Context(), "SHOW search_path").Scan(&path))
		require.NotEqual(t, "elsewhere", path, "ignoring is what it says")
	})
}

// TestWhatTheDSNSetsSurvivesCleaningThroughPgBouncer: RESET ALL leads to the
// defaults of PgBouncer's connection, and PgBouncer takes them for ours.
func TestWhatTheDSNSetsSurvivesCleaningThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	account := server.NewAccount(t)
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			bouncer := testbed.StartPgBouncer(t, account, "pool_mode="+mode, "max_prepared_statements=20")
			connector := pooldriver.New(account.Via(bouncer.Addr).URL("pool_max_conns=1", "timezone=Asia/Tokyo", "application_name=shop%27s"), logged(t))
			db := sql.OpenDB(connector)
			defer db.Close()
			for range 3 {
				var zone, name string
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT current_setting('TimeZone'), current_setting('application_name')").Scan(&zone, &name))
				require.Equal(t, "Asia/Tokyo", zone)
				require.Equal(t, "shop's", name)
				_, err := db.ExecContext(t.Context(), "SET timezone = 'Asia/Kathmandu'")
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, connector.Stats().Cleanings, uint64(2))
			require.EqualValues(t, 1, connector.Stats().Pool.Creates)
		})
	}
}

// set sets a variable in a task of its own.
func set(t *testing.T, db *sql.DB) {
	t.Helper()
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "SET pooldriver.mine = 'one''s'")
		return err
	}))
}

// TestSettingsOfAContextReachNobodyElseThroughPgBouncer: all clients have one server
// connection in turn.
func TestSettingsOfAContextReachNobodyElseThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	account := server.NewAccount(t)
	const see = "SELECT coalesce(current_setting('app.tenant', true), '')"
	for _, prepared := range []string{"max_prepared_statements=0", "max_prepared_statements=20"} {
		for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
			bouncer := testbed.StartPgBouncer(t, account, "default_pool_size=1", prepared)
			var clients [2]*sql.DB
			for i := range clients {
				clients[i] = sql.OpenDB(pooldriver.New(account.Via(bouncer.Addr).URL("pool_reset=off", "default_query_exec_mode="+mode), logged(t)))
			}
			requireSeen := func(want, got string) { t.Helper(); require.Equal(t, want, got, "%s, %s", prepared, mode) }
			tenant := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "a"})
			for range 3 {
				for _, db := range clients {
					var seen string
					require.NoError(t, db.QueryRowContext(tenant, see).Scan(&seen))
					requireSeen("a", seen)
					require.NoError(t, db.QueryRowContext(t.Context(), see+" WHERE 1 = $1", 1).Scan(&seen))
					requireSeen("", seen)
					require.NoError(t, pooldriver.InTx(tenant, db, nil, func(ctx context.Context, tx *sql.Tx) error {
						return tx.QueryRowContext(ctx, see).Scan(&seen)
					}))
					requireSeen("a", seen)
					_, err := db.ExecContext(tenant, "SELECT 1")
					require.NoError(t, err)
					require.NoError(t, db.QueryRowContext(t.Context(), see).Scan(&seen))
					requireSeen("", seen)
				}
			}
			for _, db := range clients {
				require.NoError(t, db.Close())
			}
		}
	}
}

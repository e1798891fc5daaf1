package integration

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// tenantIs is a context of that tenant's.
func tenantIs(ctx context.Context, tenant string) context.Context {
	return pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": tenant})
}

// settingUses are ways to execute a statement. Each returns the tenant that it saw.
var settingUses = map[string]func(ctx context.Context, t *testing.T, db *sql.DB, see string) string{
	"a query": func(ctx context.Context, t *testing.T, db *sql.DB, see string) (seen string) {
		require.NoError(t, db.QueryRowContext(ctx, see).Scan(&seen))
		return seen
	},
	"a query with an argument": func(ctx context.Context, t *testing.T, db *sql.DB, see string) (seen string) {
		require.NoError(t, db.QueryRowContext(ctx, see+" WHERE 1 = $1", 1).Scan(&seen))
		return seen
	},
	"a statement": func(ctx context.Context, t *testing.T, db *sql.DB, see string) (seen string) {
		_, err := db.ExecContext(ctx, "UPDATE seen SET tenant = current_setting('app.tenant', true)")
		require.NoError(t, err)
		return ""
	},
	"a transaction": func(ctx context.Context, t *testing.T, db *sql.DB, see string) (seen string) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, tx.QueryRow(see).Scan(&seen), "whose context says nothing")
			require.NoError(t, tx.QueryRowContext(ctx, see).Scan(&seen))
		}
		require.NoError(t, tx.Commit())
		return seen
	},
}

// TestPostgresSettingsNeedNoRoundTrip counts them, in each of pgx's modes.
func TestPostgresSettingsNeedNoRoundTrip(t *testing.T) {
	t.Parallel()
	const see = "SELECT coalesce(current_setting('app.tenant', true), '')"
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
			proxy, err := byteproxy.Listen(account.Addr)
			require.NoError(t, err)
			defer func() { require.NoError(t, proxy.Close()) }()
			for _, lazy := range []bool{false, true} {
				d := database{kind: "postgres", account: account.Via(proxy.Addr()), parameters: []string{"default_query_exec_mode=" + mode}}
				db, _ := d.open(t, 1, func(c *pooldriver.Config) { c.LazyBegin = lazy })
				mustExec(t, db, "CREATE TABLE IF NOT EXISTS seen AS SELECT 'nobody' AS tenant")
				for name, run := range settingUses {
					count := func(ctx context.Context) int {
						run(ctx, t, db, see) // prepared from here on
						proxy.Count()
						run(ctx, t, db, see)
						return proxy.RoundTrips()
					}
					plain := count(t.Context())
					require.Equal(t, plain, count(tenantIs(t.Context(), "it's 1")), "%s, lazy: %v", name, lazy)
					zone := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"timezone": "Asia/Tokyo"})
					require.LessOrEqual(t, count(zone), plain, "%s in a time zone, lazy: %v", name, lazy)
					seen := run(tenantIs(t.Context(), "it's 2"), t, db, see)
					if name == "a statement" {
						require.NoError(t, account.Witness(t).QueryRow("SELECT tenant FROM seen").Scan(&seen))
					}
					require.Equal(t, "it's 2", seen, name)
					require.Empty(t, run(t.Context(), t, db, see), name)
				}
				require.NoError(t, db.Close())
			}
		})
	}
}

// setAlone are statements that the server executes only where nothing has come before them
// in their implicit transaction.
var setAlone = []string{
	"VACUUM", "VACUUM t", "CREATE DATABASE other", "CREATE INDEX CONCURRENTLY i ON t (a)", "ALTER SYSTEM SET work_mem = '8MB'",
	"DISCARD ALL", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
}

// inABlock is how PostgreSQL 18 answers, behind settings, the statements for which it matters
// whether there is a transaction block: it opens a block for what stands before a Sync.
var inABlock = map[string]string{
	"LOCK TABLE t": "<nil>", "DECLARE c CURSOR FOR SELECT 1": "<nil>",
	"CALL commits()": "2D000", "DO $$BEGIN COMMIT; END$$": "2D000",
}

// TestPostgresStatementsWithSettingsGoAsWithoutThem compares what each does, its error, and
// the transaction after it.
func TestPostgresStatementsWithSettingsGoAsWithoutThem(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "describe_exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s, witness := lazyBed(t, "default_query_exec_mode="+mode)
			carrier := s.(dialects.SettingsCarrier)
			dialect, err := dialects.Find("postgres:")
			require.NoError(t, err)
			opensBlock := false
			require.NoError(t, witness.QueryRow("SELECT current_setting('server_version_num')::int >= 180000").Scan(&opensBlock))
			course := func(st statement, inTx, carries bool) (story []string) {
				_, err := witness.Exec("DELETE FROM t; INSERT INTO t VALUES (0); DROP TABLE IF EXISTS u")
				require.NoError(t, err)
				note := func(what string, err error) {
					story = append(story, fmt.Sprintf("%s: %s, %v", what, describe(err), s.TxStatus()))
				}
				try := func(text string, args ...any) error {
					effect := dialect.Effect(text)
					begins := effect&dialects.TxControl != 0 && effect&dialects.Suspect == 0 && !dialects.MayBeScript(text)
					if carries && !begins && s.TxStatus() != dialects.TxFailed {
						require.NoError(t, carrier.CarrySettings(t.Context(), []dialects.ContextSetting{{Name: "app.tenant", Value: "7"}}))
						defer carrier.DropSettings()
					}
					return pgTry(t.Context(), s, text, args...)
				}
				if inTx {
					pgExec(t, s, "BEGIN")
				}
				note("first", try(st.text, st.args...))
				require.NotEqual(t, "active", pgActivity(t, witness, s))
				alone := slices.Contains(setAlone, st.text) && (!inTx || strings.HasPrefix(st.text, "SET"))
				if alone && carries {
					assert.Contains(t, story[0], "ERROR", st.text)
				}
				if answer, differs := inABlock[st.text]; differs && opensBlock && !inTx {
					alone = true
					if carries {
						assert.Contains(t, story[0], answer, st.text)
					}
				}
				if alone {
					story = nil
				}
				if !alone {
					note("second", try("INSERT INTO t VALUES (77)"))
					note("third", try("INSERT INTO t VALUES ($1)", int64(78)))
				}
				require.NoError(t, s.Rollback(t.Context()))
				require.NoError(t, pgTry(t.Context(), s, "SELECT 1"))
				require.Contains(t, []any{nil, ""}, pgValue(t, s, "SELECT current_setting('app.tenant', true)"))
				require.Zero(t, pgValue(t, s, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'pooldriver%'"))
				if !alone {
					story = append(story, fmt.Sprint("rows ", pgRows(t, witness)))
				}
				_, err = s.Clean(t.Context(), dialects.Suspect)
				require.NoError(t, err)
				return story
			}
			for _, st := range pgStatements() {
				for _, inTx := range []bool{false, true} {
					want, got := course(st, inTx, false), course(st, inTx, true)
					assert.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"), "%.60q %.20v inTx=%v", st.text, st.args, inTx)
				}
			}
		})
	}
}

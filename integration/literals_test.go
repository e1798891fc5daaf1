package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// A server reads the literals of a text when it prepares the text. These tests look whether a
// prepared statement that is kept still answers as the settings of its session want.

// onEachKeeper runs the test on every server, by New, with deferred begin, and by Wrap.
func onEachKeeper(t *testing.T, test func(t *testing.T, d database, options ...pooldriver.Option)) {
	t.Helper()
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		t.Run("New", func(t *testing.T) { test(t, d) })
		t.Run("New, deferred begin", func(t *testing.T) {
			test(t, d, func(c *pooldriver.Config) { c.LazyBegin = true })
		})
		t.Run("Wrap", func(t *testing.T) {
			d.wrap = true
			test(t, d)
		})
	})
}

// zones are time zones, with the Unix time at which 2026 begins there.
var zones = []struct {
	name, offset string
	begins       int64
}{{"Asia/Tokyo", "+09:00", 1767193200}, {"America/Phoenix", "-07:00", 1767250800}, {"UTC", "+00:00", 1767225600}}

// yearBegins is a query with an argument for the Unix time at which 2026 begins in the session's
// time zone. The literal is compared with a column.
func (d database) yearBegins() string {
	if d.kind == "postgres" {
		return "SELECT extract(epoch FROM '2026-01-01 00:00'::timestamptz)::bigint WHERE $1 = 1"
	}
	return "SELECT MIN(epoch) FROM moments WHERE at >= '2026-01-01 00:00' AND ? = 1"
}

// setUpMoments makes the table of yearBegins.
func (d database) setUpMoments(t testing.TB) {
	t.Helper()
	if d.kind == "postgres" {
		return
	}
	statements := []string{"CREATE TABLE IF NOT EXISTS moments (at timestamp, epoch bigint)"}
	for _, zone := range zones {
		statements = append(statements, fmt.Sprintf("INSERT INTO moments VALUES (FROM_UNIXTIME(%[1]d), %[1]d)", zone.begins))
	}
	d.execute(t, statements...)
}

func (d database) setZone(name, offset string) string {
	if d.kind == "postgres" {
		return "SET TIME ZONE '" + name + "'"
	}
	return "SET time_zone = '" + offset + "'"
}

func beginning(ctx context.Context, t testing.TB, q rowQuerier, text string) (at int64) {
	t.Helper()
	require.NoError(t, q.QueryRowContext(ctx, text, 1).Scan(&at))
	return at
}

const utc = 1767225600

func TestNoTimeZoneReachesTheNextBorrowerInAStatement(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		d.setUpMoments(t)
		db, _ := d.open(t, 2, options...)
		for round := range 20 {
			ctx, end := pooldriver.WithTask(t.Context())
			zone := zones[round%len(zones)]
			_, err := db.ExecContext(ctx, d.setZone(zone.name, zone.offset))
			require.NoError(t, err)
			for range 3 {
				require.Equal(t, zone.begins, beginning(ctx, t, db, d.yearBegins()), zone.name)
			}
			end()
			for range 3 {
				require.EqualValues(t, utc, beginning(t.Context(), t, db, d.yearBegins()), "after %s", zone.name)
			}
		}
	})
}

// TestAStatementFollowsTheTimeZoneOfItsSession has one session with several settings, also by
// statements that the program has prepared.
func TestAStatementFollowsTheTimeZoneOfItsSession(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		d.setUpMoments(t)
		db, _ := d.open(t, 1, options...)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		stmt, err := conn.PrepareContext(t.Context(), d.yearBegins())
		require.NoError(t, err)
		for round := range 9 {
			zone := zones[round%len(zones)]
			mustExec(t, conn, d.setZone(zone.name, zone.offset))
			for range 3 {
				require.Equal(t, zone.begins, beginning(t.Context(), t, conn, d.yearBegins()), zone.name)
				var at int64
				require.NoError(t, stmt.QueryRow(1).Scan(&at))
				require.Equal(t, zone.begins, at, zone.name)
			}
		}
		require.NoError(t, stmt.Close())
		require.NoError(t, conn.Close())
		require.EqualValues(t, utc, beginning(t.Context(), t, db, d.yearBegins()))
	})
}

// TestPostgresAStatementOutlivesNoSettingOfATransaction: a setting ends with its transaction, also
// where nothing has to be cleaned.
func TestPostgresAStatementOutlivesNoSettingOfATransaction(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		if d.kind != "postgres" {
			return
		}
		db, _ := d.open(t, 1, options...)
		stmt, err := db.Prepare(d.yearBegins())
		require.NoError(t, err)
		for _, set := range []string{"SET LOCAL TIME ZONE 'Asia/Tokyo'", "SELECT set_config('TimeZone', 'Asia/Tokyo', true)", "SET TIME ZONE 'Asia/Tokyo'"} {
			for _, commit := range []bool{true, false} {
				ctx, end := pooldriver.WithTask(t.Context())
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.EqualValues(t, utc, beginning(ctx, t, tx, d.yearBegins()))
				mustExec(t, tx, "SAVEPOINT s")
				mustExec(t, tx, set)
				for range 3 {
					require.Equal(t, zones[0].begins, beginning(ctx, t, tx, d.yearBegins()), set)
					var at int64
					require.NoError(t, tx.Stmt(stmt).QueryRow(1).Scan(&at))
					require.Equal(t, zones[0].begins, at, set)
				}
				if !commit {
					mustExec(t, tx, "ROLLBACK TO SAVEPOINT s")
					require.EqualValues(t, utc, beginning(ctx, t, tx, d.yearBegins()), set)
				}
				require.NoError(t, tx.Commit())
				if !commit || set != "SET TIME ZONE 'Asia/Tokyo'" {
					require.EqualValues(t, utc, beginning(ctx, t, db, d.yearBegins()), set)
				}
				end()
				for range 2 {
					require.EqualValues(t, utc, beginning(t.Context(), t, db, d.yearBegins()), set)
					var at int64
					require.NoError(t, stmt.QueryRow(1).Scan(&at))
					require.EqualValues(t, utc, at, set)
				}
			}
		}
	})
}

// TestAStatementFollowsTheTimeZoneThatAFunctionOfRawHasSet: what such a function does is not seen.
func TestAStatementFollowsTheTimeZoneThatAFunctionOfRawHasSet(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		d.setUpMoments(t)
		db, _ := d.open(t, 1, options...)
		for range 3 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			for _, zone := range zones {
				require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
					_, err := dc.(driver.ExecerContext).ExecContext(t.Context(), d.setZone(zone.name, zone.offset), nil)
					return err
				}))
				for range 3 {
					require.Equal(t, zone.begins, beginning(t.Context(), t, conn, d.yearBegins()), zone.name)
				}
			}
			require.NoError(t, conn.Close())
			require.EqualValues(t, utc, beginning(t.Context(), t, db, d.yearBegins()))
		}
	})
}

// TestPostgresAFunctionOfRawLeavesNoStatementOfItsContextsTimeZone has the function use pgx's own
// statements.
func TestPostgresAFunctionOfRawLeavesNoStatementOfItsContextsTimeZone(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		if d.kind != "postgres" {
			return
		}
		db, _ := d.open(t, 1, options...)
		ctx := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"timezone": "Asia/Tokyo"})
		for round := range 3 {
			text := fmt.Sprintf("%s /* %d */", d.yearBegins(), round) // pgx has not kept it yet
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				var at int64
				require.NoError(t, dc.(*stdlib.Conn).Conn().QueryRow(t.Context(), text, 1).Scan(&at))
				require.Equal(t, zones[0].begins, at)
				return nil
			}))
			require.EqualValues(t, utc, beginning(t.Context(), t, conn, text))
			require.NoError(t, conn.Close())
			require.EqualValues(t, utc, beginning(t.Context(), t, db, text))
		}
	})
}

// zoneUses are ways to ask for the beginning of the year under a context's settings.
var zoneUses = map[string]func(ctx context.Context, t *testing.T, d database, db *sql.DB, stmt *sql.Stmt) int64{
	"a query": func(ctx context.Context, t *testing.T, d database, db *sql.DB, _ *sql.Stmt) int64 {
		return beginning(ctx, t, db, d.yearBegins())
	},
	"a query without arguments": func(ctx context.Context, t *testing.T, d database, db *sql.DB, _ *sql.Stmt) (at int64) {
		require.NoError(t, db.QueryRowContext(ctx, "SELECT extract(epoch FROM '2026-01-01 00:00'::timestamptz)::bigint").Scan(&at))
		return at
	},
	"a statement": func(ctx context.Context, t *testing.T, d database, db *sql.DB, _ *sql.Stmt) (at int64) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "UPDATE years SET begins = extract(epoch FROM '2026-01-01 00:00'::timestamptz) WHERE $1 = 1", 1)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow("SELECT begins FROM years").Scan(&at))
		require.NoError(t, tx.Commit())
		return at
	},
	"a prepared statement": func(ctx context.Context, t *testing.T, _ database, _ *sql.DB, stmt *sql.Stmt) (at int64) {
		require.NoError(t, stmt.QueryRowContext(ctx, 1).Scan(&at))
		return at
	},
	"a statement prepared there": func(ctx context.Context, t *testing.T, d database, db *sql.DB, _ *sql.Stmt) (at int64) {
		stmt, err := db.PrepareContext(ctx, d.yearBegins())
		require.NoError(t, err)
		require.NoError(t, stmt.QueryRowContext(ctx, 1).Scan(&at))
		require.NoError(t, stmt.Close())
		return at
	},
	"a transaction": func(ctx context.Context, t *testing.T, d database, db *sql.DB, stmt *sql.Stmt) (at int64) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		at = beginning(context.WithoutCancel(t.Context()), t, tx, d.yearBegins())
		for range 2 {
			require.Equal(t, at, beginning(ctx, t, tx, d.yearBegins()))
			var again int64
			require.NoError(t, tx.Stmt(stmt).QueryRow(1).Scan(&again))
			require.Equal(t, at, again)
		}
		require.NoError(t, tx.Commit())
		return at
	},
}

// TestPostgresTenantsWithTimeZonesOfTheirOwn has tenants whose contexts set the time zone use the
// same texts on two connections, in each of pgx's modes.
func TestPostgresTenantsWithTimeZonesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol", "cache_statement&description_cache_capacity=0"} {
		for _, way := range []string{"New", "New, deferred begin", "Wrap"} {
			t.Run(mode+", "+way, func(t *testing.T) {
				t.Parallel()
				d := database{
					kind: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t), wrap: way == "Wrap",
					parameters: []string{"default_query_exec_mode=" + mode},
				}
				if d.wrap && mode != "cache_statement" {
					return // a wrapped connector has no parameters of its own
				}
				db, _ := d.open(t, 2, func(c *pooldriver.Config) { c.LazyBegin = way == "New, deferred begin" })
				mustExec(t, db, "CREATE TABLE years AS SELECT 0::bigint AS begins")
				stmt, err := db.Prepare(d.yearBegins())
				require.NoError(t, err)
				for round := range 10 {
					for _, zone := range zones {
						ctx := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"timezone": zone.name})
						for name, use := range zoneUses {
							require.Equal(t, zone.begins, use(ctx, t, d, db, stmt), "%s in %s, round %d", name, zone.name, round)
							require.EqualValues(t, utc, use(t.Context(), t, d, db, stmt), "%s without settings, round %d", name, round)
						}
					}
				}
				require.NoError(t, stmt.Close())
			})
		}
	}
}

// TestMariaDBAStatementFollowsTheTimeOfItsHistory: system_versioning_asof decides what a table is
// when a text is prepared.
func TestMariaDBAStatementFollowsTheTimeOfItsHistory(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		if d.account.Server.Engine != testbed.MySQL || mariaDBVersion(t, d) == "" {
			return
		}
		mustExec(t, d.witness(t), "CREATE OR REPLACE TABLE history (a int) WITH SYSTEM VERSIONING")
		mustExec(t, d.witness(t), "INSERT INTO history VALUES (1), (2)")
		db, _ := d.open(t, 1, options...)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		count := func(want int) {
			t.Helper()
			for range 3 {
				var n int
				require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM history WHERE ? = 1", 1).Scan(&n))
				require.Equal(t, want, n)
			}
		}
		for range 3 {
			count(2)
			mustExec(t, conn, "SET system_versioning_asof = '2000-01-01'")
			count(0)
			mustExec(t, conn, "SET system_versioning_asof = DEFAULT")
		}
		require.NoError(t, conn.Close())
	})
}

func mariaDBVersion(t testing.TB, d database) (version string) {
	t.Helper()
	_ = d.witness(t).QueryRow("SELECT VERSION() WHERE VERSION() LIKE '%MariaDB%'").Scan(&version)
	return version
}

// TestPostgresAFunctionForgetsTheTimeZoneOfTheLastBorrower: a session keeps the plans of its
// functions, too. Each function is called under the time zone first.
func TestPostgresAFunctionForgetsTheTimeZoneOfTheLastBorrower(t *testing.T) {
	onEachKeeper(t, func(t *testing.T, d database, options ...pooldriver.Option) {
		if d.kind != "postgres" {
			return
		}
		db, _ := d.open(t, 1, options...)
		functions := 0
		function := func() string {
			functions++
			mustExec(t, d.witness(t), fmt.Sprintf(`CREATE OR REPLACE FUNCTION year_begins_%d() RETURNS bigint LANGUAGE plpgsql AS $$
				DECLARE at timestamptz; BEGIN SELECT '2026-01-01 00:00'::timestamptz INTO at; RETURN extract(epoch FROM at); END $$`, functions))
			return fmt.Sprintf("SELECT year_begins_%d() WHERE $1 = 1", functions)
		}
		for _, zone := range zones {
			text := function()
			ctx, end := pooldriver.WithTask(t.Context())
			_, err := db.ExecContext(ctx, d.setZone(zone.name, zone.offset))
			require.NoError(t, err)
			for range 8 {
				require.Equal(t, zone.begins, beginning(ctx, t, db, text))
			}
			end()
			require.EqualValues(t, utc, beginning(t.Context(), t, db, text), "after %s", zone.name)

			text = function()
			ctx = pooldriver.WithSettings(t.Context(), pooldriver.Settings{"timezone": zone.name})
			require.Equal(t, zone.begins, beginning(ctx, t, db, text))
			require.EqualValues(t, utc, beginning(t.Context(), t, db, text), "after a context with %s", zone.name)
		}
	})
}

package sandboxes

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

// What a savepoint is not: each is put right, or said.

// inTx runs fn in a transaction of the program.
func inTx(t *testing.T, db *sql.DB, fn func(tx *sql.Tx)) error {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	fn(tx)
	return tx.Commit()
}

// TestSandboxSetsLocalSettingsBack: otherwise a test of row-level security would pass although the
// program forgets to set its tenant.
func TestSandboxSetsLocalSettingsBack(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	tenant := func(t *testing.T, db querier) (value string) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(context.Background(), "SELECT coalesce(current_setting('app.tenant', true), '')").Scan(&value))
		return value
	}
	for name, set := range map[string]func(t *testing.T, tx *sql.Tx){
		"SET LOCAL":          func(t *testing.T, tx *sql.Tx) { mustExec(t, tx, "SET LOCAL app.tenant = '7'") },
		"set_config":         func(t *testing.T, tx *sql.Tx) { mustExec(t, tx, "SELECT set_config('app.tenant', '7', true)") },
		"set_config with $1": func(t *testing.T, tx *sql.Tx) { mustExec(t, tx, "SELECT set_config($1, $2, true)", "app.tenant", "7") },
		"in a text of two":   func(t *testing.T, tx *sql.Tx) { mustExec(t, tx, "SELECT 1; SET LOCAL app.tenant = '7'") },
		"in a savepoint": func(t *testing.T, tx *sql.Tx) {
			mustExec(t, tx, "SAVEPOINT s")
			mustExec(t, tx, "SET LOCAL app.tenant = '7'")
			mustExec(t, tx, "RELEASE s")
		},
		"after another value": func(t *testing.T, tx *sql.Tx) {
			mustExec(t, tx, "SET LOCAL app.tenant = '6'")
			mustExec(t, tx, "SET LOCAL app.tenant = '7'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := sandbox.DB(t, s.connector)
			require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
				set(t, tx)
				require.Equal(t, "7", tenant(t, tx))
			}))
			require.Empty(t, tenant(t, db))
			require.NoError(t, inTx(t, db, func(tx *sql.Tx) { require.Empty(t, tenant(t, tx)) }))
		})
	}
	t.Run("outside of a transaction", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		mustExec(t, db, "SELECT set_config('app.tenant', '7', true)")
		require.Empty(t, tenant(t, db))
	})
	t.Run("a setting of the session under it", func(t *testing.T) {
		conn, err := sandbox.DB(t, s.connector).Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		mustExec(t, conn, "SET app.tenant = '5'")
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		mustExec(t, tx, "SET LOCAL app.tenant = '7'")
		require.NoError(t, tx.Commit())
		require.Equal(t, "5", tenant(t, conn))
	})
	t.Run("what nobody may set", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
		for _, text := range []string{"SET LOCAL data_directory = 'x'", "SET LOCAL app.x.y..z = '1'", "SELECT set_config('krb_server_keyfile', 'x', true)"} {
			_, err := db.Exec(text)
			require.Error(t, err, text)
			require.Error(t, inTx(t, db, func(tx *sql.Tx) { _, err := tx.Exec(text); require.Error(t, err) }))
		}
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
	})
	t.Run("roles and time zones", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
			mustExec(t, tx, "SET LOCAL TIME ZONE 'Asia/Tokyo'")
			mustExec(t, tx, "SET LOCAL search_path TO pg_catalog, public")
		}))
		var zone, path string
		require.NoError(t, db.QueryRow("SELECT current_setting('timezone'), current_setting('search_path')").Scan(&zone, &path))
		require.NotEqual(t, "Asia/Tokyo", zone)
		require.NotContains(t, path, "pg_catalog")
	})
}

// TestSandboxTenantsHaveTimeZonesOfTheirOwn: the literals of a kept statement are those of its tenant.
func TestSandboxTenantsHaveTimeZonesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sandbox.DB(t, s.connector)
	const text = "SELECT extract(epoch FROM '2026-01-01 00:00'::timestamptz)::bigint WHERE $1 = 1"
	stmt, err := db.Prepare(text)
	require.NoError(t, err)
	begins := func(ctx context.Context, q interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}) (sent, prepared int64) {
		t.Helper()
		require.NoError(t, q.QueryRowContext(ctx, text, 1).Scan(&sent))
		require.NoError(t, stmt.QueryRowContext(ctx, 1).Scan(&prepared))
		return sent, prepared
	}
	const tokyo, phoenix, utc = 1767193200, 1767250800, 1767225600
	for range 3 {
		for zone, want := range map[string]int64{"Asia/Tokyo": tokyo, "America/Phoenix": phoenix, "UTC": utc} {
			sent, prepared := begins(pooldriver.WithSettings(t.Context(), pooldriver.Settings{"timezone": zone}), db)
			require.Equal(t, []int64{want, want}, []int64{sent, prepared}, zone)
			sent, prepared = begins(t.Context(), db)
			require.Equal(t, []int64{utc, utc}, []int64{sent, prepared}, "after %s", zone)
			var at int64
			require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
				mustExec(t, tx, "SET LOCAL TIME ZONE '"+zone+"'")
				require.NoError(t, tx.QueryRow(text, 1).Scan(&at))
			}))
			require.Equal(t, want, at, zone)
			sent, prepared = begins(t.Context(), db)
			require.Equal(t, []int64{utc, utc}, []int64{sent, prepared}, "after SET LOCAL %s", zone)
		}
	}
	require.NoError(t, stmt.Close())
}

func TestSandboxTenantsBySettingsOfContexts(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE TABLE orders (tenant text NOT NULL DEFAULT current_setting('app.tenant'), id integer)")
	mustExec(t, s.witness, "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
	mustExec(t, s.witness, "CREATE POLICY own ON orders USING (tenant = current_setting('app.tenant', true))")
	mustExec(t, s.witness, "GRANT ALL ON orders TO PUBLIC")
	db := sandbox.DB(t, s.connector)
	a := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "a"})
	b := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "b"})
	seen := func(ctx context.Context) (n int) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n))
		return n
	}
	_, err := db.ExecContext(a, "INSERT INTO orders (id) VALUES ($1)", 1)
	require.NoError(t, err)
	_, err = db.ExecContext(b, "INSERT INTO orders (id) VALUES (2), (3)")
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 0, 1}, []int{seen(a), seen(b), seen(t.Context()), seen(a)})
	tx, err := db.BeginTx(b, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(b, "INSERT INTO orders (id) VALUES (4)")
	require.NoError(t, err)
	_, err = tx.ExecContext(a, "INSERT INTO orders (id) VALUES (5)")
	require.ErrorContains(t, err, "other settings", "as in production")
	require.NoError(t, tx.Commit())
	require.Equal(t, []int{0, 3, 1}, []int{seen(t.Context()), seen(b), seen(a)})
	_, err = db.ExecContext(a, "INSERT INTO orders (id) VALUES ('x')")
	require.Error(t, err)
	require.Equal(t, []int{0, 3, 1}, []int{seen(t.Context()), seen(b), seen(a)})
	require.NoError(t, pooldriver.InTx(a, db, nil, func(ctx context.Context, _ *sql.Tx) error {
		require.Equal(t, 1, seen(ctx))
		return nil
	}))
	require.Equal(t, []int{0, 3, 1}, []int{seen(t.Context()), seen(b), seen(a)})
}

func TestSandboxEndsTemporaryTablesOfATransaction(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sandbox.DB(t, s.connector)
	for range 2 {
		require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
			mustExec(t, tx, "CREATE TEMP TABLE batch (id integer) ON COMMIT DROP")
			mustExec(t, tx, "INSERT INTO batch VALUES (1)")
		}))
	}
	_, err := db.Exec("SELECT * FROM batch")
	require.ErrorContains(t, err, "42P01")
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, tx, "CREATE TEMPORARY TABLE kept (id integer) ON COMMIT DELETE ROWS")
	mustExec(t, tx, "INSERT INTO kept VALUES (1)")
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM kept").Scan(&n))
	require.Zero(t, n)
}

func TestSandboxHonoursReadOnlyAndAcceptsIsolationLevels(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.Equal(t, 1, count(t, tx, "SELECT count(*) FROM ledger"))
	_, err = tx.Exec("INSERT INTO ledger VALUES (2, 'a')")
	require.ErrorContains(t, err, "25006")
	require.NoError(t, tx.Rollback())
	mustExec(t, db, "INSERT INTO ledger VALUES (2, 'a')")
	tx, err = db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (3, 'a')")
	require.NoError(t, tx.Commit())
	tx, err = db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	mustExec(t, tx, "DELETE FROM ledger WHERE id = 3")
	require.NoError(t, tx.Rollback())
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, conn, "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
	_, err = conn.ExecContext(t.Context(), "DELETE FROM ledger")
	require.ErrorContains(t, err, "25006")
	mustExec(t, conn, "ROLLBACK")
	require.NoError(t, conn.Close())
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxChecksDeferredConstraintsAtCommit(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE TABLE parts (id integer PRIMARY KEY, of integer CONSTRAINT of_ledger REFERENCES ledger DEFERRABLE INITIALLY DEFERRED,"+
		" prompt integer CONSTRAINT prompt REFERENCES ledger DEFERRABLE)")
	mustExec(t, s.witness, "GRANT ALL ON parts TO PUBLIC")
	db := sandbox.DB(t, s.connector)
	broken := inTx(t, db, func(tx *sql.Tx) { mustExec(t, tx, "INSERT INTO parts VALUES (1, 99)") })
	require.ErrorContains(t, broken, "of_ledger")
	require.Zero(t, count(t, db, "SELECT count(*) FROM parts"))
	require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
		mustExec(t, tx, "INSERT INTO parts VALUES (1, 99)")
		mustExec(t, tx, "INSERT INTO ledger VALUES (99, 'late')")
	}))
	_, err := db.Exec("INSERT INTO parts VALUES ($1, $2)", 2, 98)
	require.ErrorContains(t, err, "of_ledger", "the statement is a transaction of its own")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM parts"))
	require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
		_, err := tx.Exec("SAVEPOINT s; INSERT INTO parts VALUES (3, 99, 97)")
		require.ErrorContains(t, err, "prompt", "a constraint that is not initially deferred is checked at once")
		mustExec(t, tx, "ROLLBACK TO s")
		mustExec(t, tx, "SET CONSTRAINTS prompt DEFERRED")
		mustExec(t, tx, "INSERT INTO parts VALUES (3, 99, 97)")
		mustExec(t, tx, "DELETE FROM parts WHERE id = 3")
	}))
	broken = inTx(t, db, func(tx *sql.Tx) {
		mustExec(t, tx, "SET CONSTRAINTS prompt DEFERRED")
		mustExec(t, tx, "INSERT INTO parts VALUES (4, 99, 97)")
	})
	require.ErrorContains(t, broken, "prompt")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM parts"))
}

func TestSandboxTakesTransactionsByHand(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "INSERT INTO ledger VALUES (2, 'a')")
	mustExec(t, conn, "ROLLBACK")
	mustExec(t, conn, "START TRANSACTION")
	mustExec(t, conn, "INSERT INTO ledger VALUES (3, 'a')")
	mustExec(t, conn, "COMMIT")
	mustExec(t, conn, "COMMIT") // a warning in production
	_, err = conn.ExecContext(t.Context(), "COMMIT; BEGIN")
	require.ErrorContains(t, err, "sandbox.Database")
	_, err = conn.ExecContext(t.Context(), "SAVEPOINT s")
	require.ErrorContains(t, err, "outside of a transaction")
	require.NoError(t, conn.Close())
	require.Equal(t, 2, count(t, db, "SELECT count(*) FROM ledger"))
	mustExec(t, db, "BEGIN")
	mustExec(t, db, "INSERT INTO ledger VALUES (4, 'a')")
	_, err = db.Exec("ROLLBACK") // the transaction has ended with its statement, as in production
	require.NoError(t, err)
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM ledger"))
}

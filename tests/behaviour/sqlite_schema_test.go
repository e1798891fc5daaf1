package behaviour

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// oldSchemas are statements that SQLite compiles without an error only with the schema that another
// connection has made. SQLite itself reads the schema again after some errors ("no such table"),
// and not after those that follow here.
var oldSchemas = map[string]struct{ before, change, statement string }{
	"rename a table":        {"CREATE TABLE t (a); CREATE TABLE n (a)", "DROP TABLE t", "ALTER TABLE n RENAME TO t"},
	"rename a column":       {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b", "ALTER TABLE t RENAME COLUMN b TO c"},
	"drop a column":         {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b", "ALTER TABLE t DROP COLUMN b"},
	"add a column":          {"CREATE TABLE t (a, b)", "ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN b"},
	"create an index":       {"CREATE TABLE t (a); CREATE INDEX i ON t (a)", "DROP INDEX i", "CREATE INDEX i ON t (a)"},
	"create a trigger":      {"CREATE TABLE t (a); CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END", "DROP TRIGGER g", "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END"},
	"drop a view":           {"CREATE TABLE t (a)", "DROP TABLE t; CREATE VIEW t AS SELECT 1", "DROP VIEW t"},
	"more values":           {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b", "INSERT INTO t VALUES (1, 2)"},
	"a table for a view":    {"CREATE VIEW t AS SELECT 1 AS a", "DROP VIEW t; CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"},
	"on conflict":           {"CREATE TABLE t (a)", "CREATE UNIQUE INDEX i ON t (a)", "INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING"},
	"with an argument":      {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b", "INSERT INTO t VALUES (1, coalesce(?, 1))"},
	"all columns":           {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b", "SELECT 1, 2 UNION SELECT * FROM t"},
	"the first of a script": {"CREATE TABLE t (a); CREATE TABLE n (a)", "DROP TABLE t", "ALTER TABLE n RENAME TO t; INSERT INTO t VALUES (1)"},
}

// TestAStatementIsCompiledWithTheSchemaOfNow: over the bare driver a connection that has not met a
// change of the schema refuses these statements. A program cannot know which connection that is.
func TestAStatementIsCompiledWithTheSchemaOfNow(t *testing.T) {
	for name, s := range oldSchemas {
		t.Run(name, func(t *testing.T) {
			t.Run("bare", func(t *testing.T) {
				db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
				require.NoError(t, err)
				defer db.Close()
				require.Error(t, runOnOldSchema(t, db, s.before, s.change, s.statement, false), "otherwise the case proves nothing")
			})
			for _, wrap := range []bool{false, true} {
				for _, inTx := range []bool{false, true} {
					db, _ := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db"), 4)
					require.NoError(t, runOnOldSchema(t, db, s.before, s.change, s.statement, inTx), "wrap=%v, in a transaction: %v", wrap, inTx)
				}
			}
		})
	}
}

// runOnOldSchema executes statement on a connection that has read the schema before the change.
func runOnOldSchema(t *testing.T, db *sql.DB, before, change, statement string, inTx bool) error {
	t.Helper()
	ctx := t.Context()
	old, err := db.Conn(ctx)
	require.NoError(t, err)
	defer old.Close()
	changer, err := db.Conn(ctx)
	require.NoError(t, err)
	defer changer.Close()
	_, err = changer.ExecContext(ctx, before)
	require.NoError(t, err)
	var n int
	require.NoError(t, old.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n))
	_, err = changer.ExecContext(ctx, change)
	require.NoError(t, err)
	var args []any
	if statement == oldSchemas["with an argument"].statement {
		args = []any{1}
	}
	if !inTx {
		_, err = old.ExecContext(ctx, statement, args...)
		return err
	}
	tx, err := old.BeginTx(ctx, nil)
	require.NoError(t, err)
	if _, err = tx.ExecContext(ctx, statement, args...); err != nil {
		require.NoError(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

// TestAStatementThatFailedWhileItRanIsNotRepeated, although the schema was old.
func TestAStatementThatFailedWhileItRanIsNotRepeated(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		db, _ := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db"), 4)
		// The first statement of the script has run when the second one does not compile.
		err := runOnOldSchema(t, db, "CREATE TABLE t (a); CREATE TABLE n (a)", "ALTER TABLE t ADD COLUMN b",
			"INSERT INTO n VALUES (1); INSERT INTO n VALUES (1, 2)", false)
		require.ErrorContains(t, err, "1 columns but 2 values")
		err = runOnOldSchema(t, db, "SELECT 1", "CREATE TABLE other (a)", "INSERT INTO n SELECT json('{')", false)
		require.ErrorContains(t, err, "malformed JSON")
		var n int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM n").Scan(&n))
		require.Equal(t, 1, n)
	}
}

// TestTablesAreRebuiltBesideReaders, as migrations of gorm and ent do it.
func TestTablesAreRebuiltBesideReaders(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		db, _ := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)", 4)
		execAll(t, db, "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 2), (3, 4)")
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for ctx.Err() == nil {
					_, err := db.Exec("SELECT name FROM sqlite_schema")
					if err != nil {
						t.Errorf("a reader: %v", err)
						return
					}
				}
			})
		}
		for range randomtest.Rounds(150, 3100) {
			execAll(t, db, "CREATE TABLE t_new (a, b)", "INSERT INTO t_new SELECT * FROM t", "DROP TABLE t", "ALTER TABLE t_new RENAME TO t")
		}
		stop()
		readers.Wait()
	}
}

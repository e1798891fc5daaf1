package behaviour

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// migration is how a library, or a book, changes a table of SQLite. Each begins with
// parents 1 and 2, each with a child that goes with it (ON DELETE CASCADE).
type migration struct {
	name string
	run  func(t *testing.T, db *sql.DB)
}

func execAll(t *testing.T, q interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := q.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
}

// inTx executes texts in a transaction.
func inTx(t *testing.T, db *sql.DB, texts ...string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	execAll(t, tx, texts...)
	require.NoError(t, tx.Commit())
}

// noRows executes a query of which no row is expected.
func noRows(t *testing.T, q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, text string) {
	t.Helper()
	rows, err := q.QueryContext(t.Context(), text)
	require.NoError(t, err)
	require.False(t, rows.Next(), text)
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
}

var migrations = []migration{
	// https://sqlite.org/lang_altertable.html, 7: the 12 steps.
	{"manual", func(t *testing.T, db *sql.DB) {
		execAll(t, db, "PRAGMA foreign_keys=OFF")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		var ddl string
		require.NoError(t, tx.QueryRow("SELECT sql FROM sqlite_schema WHERE type='table' AND tbl_name='parent'").Scan(&ddl))
		execAll(t, tx,
			"CREATE TABLE new_parent (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '')",
			"INSERT INTO new_parent SELECT id, name FROM parent",
			"DROP TABLE parent",
			"ALTER TABLE new_parent RENAME TO parent",
			"CREATE INDEX parent_name ON parent (name)")
		noRows(t, tx, "PRAGMA foreign_key_check")
		require.NoError(t, tx.Commit())
		execAll(t, db, "PRAGMA foreign_keys=ON")
	}},
	// gorm.io/driver/sqlite v1.6.0, migrator.go: recreateTable, with the pragmas of
	// RunWithoutForeignKey, in which DropTable and a program's AlterColumn run.
	{"gorm", func(t *testing.T, db *sql.DB) {
		var enabled int
		require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&enabled))
		require.Equal(t, 1, enabled)
		execAll(t, db, "PRAGMA foreign_keys = OFF")
		var ddl string
		require.NoError(t, db.QueryRow("SELECT sql FROM sqlite_master WHERE type = ? AND tbl_name = ? AND name = ?", "table", "parent", "parent").Scan(&ddl))
		inTx(t, db,
			"CREATE TABLE `parent__temp` (`id` integer PRIMARY KEY, `name` text NOT NULL)",
			"INSERT INTO `parent__temp`(`id`,`name`) SELECT `id`,`name` FROM `parent`",
			"DROP TABLE `parent`",
			"ALTER TABLE `parent__temp` RENAME TO `parent`")
		execAll(t, db, "PRAGMA foreign_keys = ON")
	}},
	// entgo.io/ent, dialect/sql/schema/sqlite.go, and Atlas' plan of a changed column.
	{"ent", func(t *testing.T, db *sql.DB) {
		var on bool
		require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&on))
		require.True(t, on)
		execAll(t, db, "PRAGMA foreign_keys = off")
		inTx(t, db,
			"CREATE TABLE `new_parent` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `name` text NOT NULL)",
			"INSERT INTO `new_parent` (`id`, `name`) SELECT `id`, `name` FROM `parent`",
			"DROP TABLE `parent`",
			"ALTER TABLE `new_parent` RENAME TO `parent`")
		execAll(t, db, "PRAGMA foreign_keys = on")
		noRows(t, db, "PRAGMA foreign_key_check")
	}},
	// bun's documentation, Migrations: an SQL migration of several statements, each
	// executed by itself on the *bun.DB; those of a .tx file in a transaction.
	{"bun", func(t *testing.T, db *sql.DB) {
		execAll(t, db, "PRAGMA foreign_keys = 0")
		execAll(t, db, rebuildParent...)
		execAll(t, db, "PRAGMA foreign_keys = 1")
	}},
	// bun's migrate package executes such a file on a *sql.Conn.
	{"bun on a conn", func(t *testing.T, db *sql.DB) {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		execAll(t, conn, "PRAGMA foreign_keys = 0")
		execAll(t, conn, rebuildParent...)
		execAll(t, conn, "PRAGMA foreign_keys = 1")
		require.NoError(t, conn.Close())
	}},
	// The manual's steps as a file of statements, which is executed as one text.
	{"script", func(t *testing.T, db *sql.DB) {
		execAll(t, db, "PRAGMA foreign_keys = OFF; BEGIN; "+strings.Join(rebuildParent, "; ")+"; COMMIT; PRAGMA foreign_keys = ON")
	}},
	// The same as two files.
	{"scripts", func(t *testing.T, db *sql.DB) {
		execAll(t, db, "PRAGMA foreign_keys = OFF; CREATE TABLE migrating (step INTEGER)",
			strings.Join(rebuildParent, "; ")+"; DROP TABLE migrating; PRAGMA foreign_keys = ON")
	}},
}

// rebuildParent are the statements of a migration between its pragmas.
var rebuildParent = []string{
	`CREATE TABLE "parent_new" ("id" INTEGER NOT NULL PRIMARY KEY, "name" VARCHAR NOT NULL)`,
	`INSERT INTO "parent_new" SELECT "id", "name" FROM "parent"`,
	`DROP TABLE "parent"`,
	`ALTER TABLE "parent_new" RENAME TO "parent"`,
}

// migrated is what a program sees after a migration.
func migrated(t *testing.T, db *sql.DB, m migration) (seen []string) {
	t.Helper()
	execAll(t, db,
		"CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT)",
		"CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL REFERENCES parent (id) ON DELETE CASCADE)",
		"INSERT INTO parent VALUES (1, 'a'), (2, 'b')",
		"INSERT INTO child VALUES (10, 1), (20, 2)")
	m.run(t, db)
	for _, q := range []string{
		"SELECT count(*) FROM parent", "SELECT count(*) FROM child", "PRAGMA foreign_keys",
		"SELECT group_concat(name) FROM sqlite_master", "SELECT sql FROM sqlite_master WHERE name = 'child'",
	} {
		var s string
		require.NoError(t, db.QueryRow(q).Scan(&s))
		seen = append(seen, s)
	}
	_, err := db.Exec("INSERT INTO child VALUES (30, 3)")
	return append(seen, fmt.Sprint(err))
}

const withForeignKeys = "?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"

func TestAMigrationOfAFileEndsAsOnTheBareDriver(t *testing.T) {
	t.Parallel()
	for _, m := range migrations {
		t.Run(m.name, func(t *testing.T) {
			bare, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "bare.db")+withForeignKeys)
			require.NoError(t, err)
			defer bare.Close()
			bare.SetMaxOpenConns(1)
			want := migrated(t, bare, m)
			require.Equal(t, "2", want[1])
			for _, wrap := range []bool{false, true} {
				for _, max := range []int{1, 4} {
					t.Run(fmt.Sprintf("wrap=%v/max=%d", wrap, max), func(t *testing.T) {
						db, _ := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db")+withForeignKeys, max)
						require.Equal(t, want, migrated(t, db, m))
					})
				}
			}
		})
	}
}

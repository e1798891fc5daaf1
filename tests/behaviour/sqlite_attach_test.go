package behaviour

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// attached opens a database, with connections that have another database attached as a, in a
// directory of its own.
func attached(t *testing.T, busyTimeout string, f func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string)) {
	for name, wrap := range map[string]bool{"new": false, "wrap": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, c := openSQLite(t, wrap, filepath.Join(dir, "x.db")+"?_pragma=busy_timeout("+busyTimeout+")", 4)
			require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
			file := filepath.Join(dir, "sub", "a.db")
			execAll(t, db, "CREATE TABLE m (n)", "ATTACH '"+file+"' AS a", "CREATE TABLE a.t AS SELECT 7 AS n", "PRAGMA a.cache_size = -9")
			f(t, db, c, file)
		})
	}
}

// lacksA requires that new connections do everything but what names a.
func lacksA(t *testing.T, db *sql.DB, c *pooldriver.Connector, why string) {
	t.Helper()
	c.Flush()
	everyConn(t, db, 4, func(conn *sql.Conn) {
		execAll(t, conn, "INSERT INTO m VALUES (1)", "SELECT * FROM m")
		for _, text := range []string{"SELECT * FROM a.t", "SELECT * FROM t", "INSERT INTO a.t VALUES (1)", "CREATE TABLE a.u (n)", "PRAGMA a.cache_size"} {
			_, err := conn.ExecContext(t.Context(), text)
			require.ErrorContains(t, err, "ATTACH a: ", text)
			require.ErrorContains(t, err, why, text)
		}
		_, err := conn.ExecContext(t.Context(), "SELECT ?  FROM a.t", 1)
		require.ErrorContains(t, err, "ATTACH a: ")
		_, err = conn.ExecContext(t.Context(), "SELECT none FROM m")
		require.ErrorContains(t, err, "no such column")
	})
	inTx(t, db, "INSERT INTO m VALUES (2)")
}

func hasA(t *testing.T, db *sql.DB) {
	t.Helper()
	everyConn(t, db, 4, func(conn *sql.Conn) {
		var n int
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT n FROM a.t").Scan(&n))
		require.Equal(t, 7, n)
		require.Equal(t, "-9", pragma(t, conn, "a.cache_size"))
	})
}

func TestAnAttachThatCannotBeRepeatedFailsOnlyItsOwnStatements(t *testing.T) {
	t.Run("directory removed", func(t *testing.T) {
		attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
			aside := filepath.Dir(file) + "2"
			require.NoError(t, os.Rename(filepath.Dir(file), aside))
			lacksA(t, db, c, "unable to open database")
			require.NoError(t, os.Rename(aside, filepath.Dir(file)))
			hasA(t, db)
		})
	})
	t.Run("file removed", func(t *testing.T) {
		attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
			require.NoError(t, os.Rename(file, file+"2"))
			lacksA(t, db, c, "unable to open database")
			require.NoFileExists(t, file)
			require.NoError(t, os.Rename(file+"2", file))
			inTx(t, db, "INSERT INTO m VALUES (3)", "UPDATE a.t SET n = 7")
			hasA(t, db)
		})
	})
	t.Run("locked by somebody else", func(t *testing.T) {
		attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
			other, err := sql.Open("sqlite", file)
			require.NoError(t, err)
			defer other.Close()
			other.SetMaxOpenConns(1)
			execAll(t, other, "BEGIN EXCLUSIVE")
			lacksA(t, db, c, "database is locked")
			execAll(t, other, "COMMIT")
			hasA(t, db)
		})
	})
}

// TestALockedFileIsWaitedForOnce, and not by each new connection: a statement that does not need the
// file may have less time than the wait takes.
func TestALockedFileIsWaitedForOnce(t *testing.T) {
	attached(t, "2000", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
		other, err := sql.Open("sqlite", file)
		require.NoError(t, err)
		defer other.Close()
		other.SetMaxOpenConns(1)
		execAll(t, other, "BEGIN EXCLUSIVE")
		defer execAll(t, other, "COMMIT")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.Flush()
		_, _ = db.ExecContext(ctx, "SELECT * FROM m")
		var took []time.Duration
		for range 5 {
			c.Flush()
			begun := time.Now()
			mustExec(t, t.Context(), db, "SELECT * FROM m")
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		require.Less(t, took[2], 2*time.Second, "a busy machine may make one or two late")
	})
}

func TestADetachAlwaysWorks(t *testing.T) {
	gone := func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) (aside string) {
		aside = filepath.Dir(file) + "2"
		require.NoError(t, os.Rename(filepath.Dir(file), aside))
		c.Flush()
		execAll(t, db, "SELECT * FROM m")
		return filepath.Join(aside, filepath.Base(file))
	}
	attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
		file = gone(t, db, c, file)
		execAll(t, db, "DETACH a")
		everyConn(t, db, 4, func(conn *sql.Conn) {
			_, err := conn.ExecContext(t.Context(), "SELECT * FROM a.t")
			require.EqualError(t, err, "SQL logic error: no such table: a.t (1)")
		})
		execAll(t, db, "ATTACH '"+file+"' AS a", "PRAGMA a.cache_size = -9")
		hasA(t, db)
		_, err := db.Exec("DETACH other")
		require.ErrorContains(t, err, "no such database: other")
	})
	t.Run("and an ATTACH in one script", func(t *testing.T) {
		attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
			file = gone(t, db, c, file)
			execAll(t, db, "DETACH a; ATTACH '"+file+"' AS a; PRAGMA a.cache_size = -9")
			hasA(t, db)
		})
	})
	t.Run("in a script that fails", func(t *testing.T) {
		attached(t, "20", func(t *testing.T, db *sql.DB, c *pooldriver.Connector, file string) {
			aside := gone(t, db, c, file)
			_, err := db.Exec("DETACH a; SELECT none")
			require.ErrorContains(t, err, "no such column")
			require.NoError(t, os.Rename(filepath.Dir(aside), filepath.Dir(file)))
			hasA(t, db)
		})
	})
}

// TestAnAttachIsRepeatedForTheSameFile however the program has named it, after it has changed its
// directory.
func TestAnAttachIsRepeatedForTheSameFile(t *testing.T) {
	for name, s := range map[string]struct {
		attach string
		args   []any
		file   string
	}{
		"a name":                {attach: "ATTACH 'a.db' AS a", file: "a.db"},
		"a name without quotes": {attach: "ATTACH DATABASE other AS 'A'", file: "other"},
		"an argument":           {attach: "ATTACH ? AS a", args: []any{"a.db"}, file: "a.db"},
		"a named argument":      {attach: "ATTACH :file AS a", args: []any{sql.Named("file", "a.db")}, file: "a.db"},
		"with a key":            {attach: "ATTACH ? AS a KEY ?", args: []any{"a.db", "k"}, file: "a.db"},
		"computed":              {attach: "ATTACH 'a' || ? AS a", args: []any{".db"}, file: "a.db"},
		"special signs":         {attach: "ATTACH 'a?b#c%20d''e f.db' AS a", file: "a?b#c%20d'e f.db"},
		"a URI":                 {attach: "ATTACH 'file:a%20b.db?mode=rwc&cache=private#x' AS a", file: "a b.db"},
		"a script":              {attach: "ATTACH 'a.db' AS a; SELECT 1", file: "a.db"},
	} {
		for _, wrap := range []bool{false, true} {
			for _, main := range []string{"x.db", ":memory:"} {
				if wrap && main == ":memory:" {
					continue // private: one connection, which stays
				}
				t.Run(name+"/"+main, func(t *testing.T) {
					dir := t.TempDir()
					t.Chdir(dir)
					if main == "x.db" {
						main = filepath.Join(dir, main)
					}
					db, c := openSQLite(t, wrap, main, 4)
					_, err := db.Exec(s.attach, s.args...)
					require.NoError(t, err)
					execAll(t, db, "CREATE TABLE a.t AS SELECT 7 AS n", "PRAGMA a.cache_size = -9")
					require.FileExists(t, filepath.Join(dir, s.file))
					elsewhere := t.TempDir()
					t.Chdir(elsewhere)
					c.Flush()
					hasA(t, db)
					made, err := os.ReadDir(elsewhere)
					require.NoError(t, err)
					require.Empty(t, made)
				})
			}
		}
	}
}

func TestAnAttachIsRepeatedWithItsParameters(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.db")
	for _, wrap := range []bool{false, true} {
		db, _ := openSQLite(t, wrap, filepath.Join(dir, "x.db"), 4)
		execAll(t, db, "ATTACH '"+file+"' AS a", "CREATE TABLE IF NOT EXISTS a.t (n)", "DETACH a", "ATTACH 'file:"+file+"?mode=ro' AS a")
		everyConn(t, db, 4, func(conn *sql.Conn) {
			execAll(t, conn, "SELECT * FROM a.t")
			_, err := conn.ExecContext(t.Context(), "INSERT INTO a.t VALUES (1)")
			require.ErrorContains(t, err, "readonly")
		})
	}
}

package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// bareSQLite is a connector of somebody else's, as database/sql makes one of a name.
type bareSQLite struct {
	dsn string
	drv driver.Driver
}

func (b bareSQLite) Connect(context.Context) (driver.Conn, error) { return b.drv.Open(b.dsn) }
func (b bareSQLite) Driver() driver.Driver                        { return b.drv }

func registeredSQLite() driver.Driver {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	return db.Driver()
}

// openSQLite opens a database by New or by Wrap.
func openSQLite(t *testing.T, wrap bool, dsn string, max int) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	limit := func(c *pooldriver.Config) { c.MaxConns = max }
	var c *pooldriver.Connector
	if wrap {
		c = pooldriver.Wrap(bareSQLite{dsn, registeredSQLite()}, quiet, limit)
	} else {
		c = pooldriver.New("sqlite:"+dsn, quiet, limit)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, c
}

// everyConn takes n connections at once and calls f with each.
func everyConn(t *testing.T, db *sql.DB, n int, f func(*sql.Conn)) {
	t.Helper()
	var all []*sql.Conn
	for range n {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		all = append(all, conn)
	}
	for _, conn := range all {
		f(conn)
	}
	for _, conn := range all {
		require.NoError(t, conn.Close())
	}
}

func pragma(t *testing.T, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, name string) (value string) {
	t.Helper()
	require.NoError(t, q.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value))
	return value
}

// bothWays runs f with New and with Wrap of a file, at max 1 and 4.
func bothWays(t *testing.T, f func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int)) {
	for _, wrap := range []bool{false, true} {
		for _, max := range []int{1, 4} {
			t.Run(fmt.Sprintf("wrap=%v/max=%d", wrap, max), func(t *testing.T) {
				db, c := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db")+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)", max)
				f(t, db, c, max)
			})
		}
	}
}

func TestAPragmaOnADBHoldsForEveryConnection(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, "1", pragma(t, conn, "foreign_keys")) })
		for _, want := range []string{"0", "1", "0"} {
			_, err := db.Exec("PRAGMA foreign_keys = " + want)
			require.NoError(t, err)
			everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, want, pragma(t, conn, "foreign_keys")) })
		}
		c.Flush()
		everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, "0", pragma(t, conn, "foreign_keys")) })
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, "0", pragma(t, tx, "foreign_keys"))
		require.NoError(t, tx.Commit())
		require.Zero(t, c.Stats().StateDropped)
	})
}

func TestAPragmaCostsNoConnectionAndEndsWithATaskOrConn(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		_, err := db.Exec("PRAGMA cache_size = -77; PRAGMA recursive_triggers = 1")
		require.NoError(t, err)
		require.Zero(t, c.Stats().Discards)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "PRAGMA cache_size = -5")
		require.NoError(t, err)
		require.Equal(t, "-5", pragma(t, conn, "cache_size"))
		require.NoError(t, conn.Close())
		ctx, end := pooldriver.WithTask(t.Context())
		_, err = db.ExecContext(ctx, "PRAGMA cache_size = -6")
		require.NoError(t, err)
		end()
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, "-77", pragma(t, conn, "cache_size"))
			require.Equal(t, "1", pragma(t, conn, "recursive_triggers"))
		})
	})
}

func TestAnAttachedDatabaseIsThereForEveryConnectionUntilDetached(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for round := range 2 {
			_, err := db.Exec("ATTACH ? AS a", filepath.Join(t.TempDir(), fmt.Sprint(round)))
			require.NoError(t, err)
			_, err = db.Exec("PRAGMA a.cache_size = -9")
			require.NoError(t, err)
			_, err = db.Exec("CREATE TABLE a.t AS SELECT ? AS n", round)
			require.NoError(t, err)
			everyConn(t, db, max, func(conn *sql.Conn) {
				var n int
				require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT n FROM a.t").Scan(&n))
				require.Equal(t, round, n)
				require.Equal(t, "-9", pragma(t, conn, "a.cache_size"))
			})
			_, err = db.Exec("DETACH a")
			require.NoError(t, err)
			if round == 1 {
				everyConn(t, db, max, func(conn *sql.Conn) {
					_, err := conn.ExecContext(t.Context(), "SELECT n FROM a.t")
					require.ErrorContains(t, err, "no such table: a.t")
				})
			}
		}
	})
}

func TestADatabaseInMemoryIsNotAttachedToEachConnection(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for _, file := range []string{"':memory:'", "''", "NULL", "'file::memory:'", "'file:a?mode=memory'"} {
			dropped := c.Stats().StateDropped
			execAll(t, db, "ATTACH "+file+" AS a")
			require.Equal(t, dropped+1, c.Stats().StateDropped, file)
		}
		everyConn(t, db, max, func(conn *sql.Conn) {
			_, err := conn.ExecContext(t.Context(), "ATTACH ':memory:' AS a") // is its own, and is not there yet
			require.NoError(t, err)
		})
		_, err := db.Exec("ATTACH 'file:a?mode=memory&cache=shared' AS a")
		require.NoError(t, err)
		_, err = db.Exec("CREATE TABLE a.t AS SELECT 7 AS n")
		require.NoError(t, err)
		everyConn(t, db, max, func(conn *sql.Conn) {
			var n int
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT n FROM a.t").Scan(&n))
			require.Equal(t, 7, n)
		})
	})
}

func TestASettingThatFailsOnAConnectionIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	db, c := openSQLite(t, false, file+"?_busy_timeout=0", 2)
	execAll(t, db, "CREATE TABLE t (a)", "PRAGMA cache_size = -9")
	other, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer other.Close()
	other.SetMaxOpenConns(1)
	execAll(t, other, "BEGIN EXCLUSIVE")
	c.Flush()
	_, err = db.Exec("SELECT 1")
	require.ErrorContains(t, err, "pooldriver: a connection to sqlite")
	require.ErrorContains(t, err, "did not get the settings of its *sql.DB: PRAGMA cache_size: database is locked")
	execAll(t, other, "COMMIT")
	execAll(t, db, "SELECT 1")
	require.NotZero(t, c.Stats().Discards)
}

func TestWhatIsSetOnAConnStaysItsOwnIfThatIsClosedInsideRaw(t *testing.T) {
	db, _ := openSQLite(t, false, filepath.Join(t.TempDir(), "a.db"), 2)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "PRAGMA foreign_keys = ON")
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(driver.Conn) error { return conn.Close() }))
	var on int
	require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&on))
	require.Zero(t, on)
}

func TestWhatIsSetOnADBInsideAConnsRawHolds(t *testing.T) {
	db, _ := openSQLite(t, false, filepath.Join(t.TempDir(), "a.db"), 2)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(any) error { _, err := db.Exec("PRAGMA foreign_keys = ON"); return err }))
	var on int
	require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&on))
	require.Equal(t, 1, on)
	require.NoError(t, conn.Close())
}

func TestWhatStandsBesideASettingOfTheFileHolds(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		_, err := db.Exec("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = 0; PRAGMA synchronous = 1")
		require.NoError(t, err)
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, []string{"wal", "0", "1"}, []string{pragma(t, conn, "journal_mode"), pragma(t, conn, "foreign_keys"), pragma(t, conn, "synchronous")})
		})
	})
}

// TestASettingInAScriptHolds: a schema's file often begins with one.
func TestASettingInAScriptHolds(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		_, err := db.Exec(`PRAGMA foreign_keys = OFF; BEGIN; CREATE TABLE t (a);
			CREATE TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END; COMMIT; PRAGMA cache_size = -9`)
		require.NoError(t, err)
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, []string{"0", "-9"}, []string{pragma(t, conn, "foreign_keys"), pragma(t, conn, "cache_size")})
		})
		require.Zero(t, c.Stats().StateDropped)
		_, err = db.Exec("BEGIN; PRAGMA foreign_keys = ON; COMMIT") // SQLite ignores it
		require.NoError(t, err)
		require.Equal(t, "0", pragma(t, db, "foreign_keys"))
	})
}

// TestAutoVacuumMeetsItsVacuum: in a file that has tables, SQLite changes the mode with a VACUUM on the
// connection that has executed the PRAGMA.
func TestAutoVacuumMeetsItsVacuum(t *testing.T) {
	const none, full, incremental = "0", "1", "2"
	change := func(t *testing.T, db *sql.DB, flush func()) {
		execAll(t, db, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", "PRAGMA auto_vacuum = FULL")
		flush()
		require.Equal(t, none, pragma(t, db, "auto_vacuum"))
		execAll(t, db, "VACUUM")
		require.Equal(t, full, pragma(t, db, "auto_vacuum"))
		execAll(t, db, "PRAGMA auto_vacuum = INCREMENTAL")
		flush()
		require.Equal(t, incremental, pragma(t, db, "auto_vacuum"), "between these two SQLite changes at once")
		execAll(t, db, "PRAGMA auto_vacuum = NONE")
		flush()
		execAll(t, db, "SELECT * FROM t", "VACUUM")
		require.Equal(t, none, pragma(t, db, "auto_vacuum"))
	}
	t.Run("bare", func(t *testing.T) {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
		require.NoError(t, err)
		defer db.Close()
		db.SetMaxOpenConns(1)
		change(t, db, func() {})
	})
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		change(t, db, c.Flush)
		execAll(t, db, "PRAGMA auto_vacuum = FULL")
		c.Flush()
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		_, err := db.ExecContext(ctx, "VACUUM")
		require.NoError(t, err)
		end()
		everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, full, pragma(t, conn, "auto_vacuum")) })
		require.Zero(t, c.Stats().StateDropped)
	})
}

// TestAVacuumIntoAnotherFileTakesNoLock, whatever waits for a VACUUM: it only reads.
func TestAVacuumIntoAnotherFileTakesNoLock(t *testing.T) {
	dir := t.TempDir()
	db, _ := openSQLite(t, false, filepath.Join(dir, "x.db")+"?_pragma=busy_timeout(0)&_pragma=journal_mode(wal)", 4)
	execAll(t, db, "PRAGMA auto_vacuum = FULL", "CREATE TABLE t (a)")
	tx, err := db.Begin()
	require.NoError(t, err)
	execAll(t, tx, "INSERT INTO t VALUES (1)")
	execAll(t, db, "VACUUM INTO '"+filepath.Join(dir, "y.db")+"'")
	require.NoError(t, tx.Rollback())
}

// TestAKeyForOneConnectionIsAnError: the connection that a program happens to get would have the key of its
// file, and the others would not.
func TestAKeyForOneConnectionIsAnError(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for _, text := range []string{"PRAGMA key = 'secret'", "PRAGMA journal_mode = WAL; PRAGMA hexkey('aa')"} {
			_, err := db.Exec(text)
			require.ErrorContains(t, err, "give the key to the driver", text)
			require.NotContains(t, err.Error(), "secret")
		}
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "PRAGMA key = 'secret'")
		require.ErrorContains(t, err, "was not executed", "the first statement of a *sql.Conn is as one of a *sql.DB")
		require.NoError(t, conn.Close())
		var ok string
		require.ErrorContains(t, db.QueryRow("PRAGMA key = 'secret'").Scan(&ok), "was not executed")
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "PRAGMA key = 'secret'")
			return err
		}))
	})
	unknown := pooldriver.Wrap(hiddenSQLite{bareSQLite{filepath.Join(t.TempDir(), "x.db"), registeredSQLite()}}, quiet)
	db := sql.OpenDB(unknown)
	defer db.Close()
	_, err := db.Exec("PRAGMA key = 'secret'")
	require.ErrorContains(t, err, "give the key to the driver")
	execAll(t, db, "ATTACH ':memory:' AS a", "PRAGMA foreign_keys = 1")
}

// hiddenSQLite is SQLite by a driver that no dialect knows.
type hiddenSQLite struct{ bareSQLite }

type hiddenDriver struct{ driver.Driver }

func (h hiddenSQLite) Driver() driver.Driver { return hiddenDriver{h.drv} }

// TestWhatANewFileIsMadeWithIsKept until it is made.
func TestWhatANewFileIsMadeWithIsKept(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		execAll(t, db, "PRAGMA page_size = 8192", "PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t (a)")
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, []string{"8192", "UTF-16le"}, []string{pragma(t, conn, "page_size"), pragma(t, conn, "encoding")})
		})
		execAll(t, db, "PRAGMA page_size = 16384", "VACUUM")
		c.Flush()
		require.Equal(t, "16384", pragma(t, db, "page_size"))
	})
}

func TestTheJournalModeOfTheMainFileIsOneSetting(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for _, text := range []string{"PRAGMA main.journal_mode = TRUNCATE", "PRAGMA journal_mode = WAL"} {
			_, err := db.Exec(text)
			require.NoError(t, err)
		}
		c.Flush()
		everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, "wal", pragma(t, conn, "journal_mode")) })
	})
}

func TestTheDefaultJournalModeUndoesNoLaterWAL(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		_, err := db.Exec("PRAGMA journal_mode = DELETE; PRAGMA synchronous = 1")
		require.NoError(t, err)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "PRAGMA journal_mode = WAL")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, []string{"wal", "1"}, []string{pragma(t, conn, "journal_mode"), pragma(t, conn, "synchronous")})
		})
	})
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for _, mode := range []string{"memory", "delete"} {
			_, err := db.Exec("PRAGMA journal_mode = " + mode)
			require.NoError(t, err)
			everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, mode, pragma(t, conn, "journal_mode")) })
		}
	})
}

func TestASettingOfAnAttachedDatabaseFollowsItsAttach(t *testing.T) {
	dir := t.TempDir()
	attach := "ATTACH '" + filepath.Join(dir, "a.db") + "' AS a"
	execute := func(t *testing.T, db *sql.DB, text string) {
		_, err := db.Exec(text)
		require.NoError(t, err)
	}
	begin := func(t *testing.T, db *sql.DB, text string) *sql.Rows {
		rows, err := db.Query(text)
		require.NoError(t, err)
		return rows
	}
	t.Run("attached again", func(t *testing.T) {
		db, _ := openSQLite(t, false, filepath.Join(dir, "x.db"), 4)
		one, two := begin(t, db, attach), begin(t, db, attach)
		require.NoError(t, one.Close())
		execute(t, db, "PRAGMA a.cache_size = -5")
		require.NoError(t, two.Close())
		everyConn(t, db, 4, func(conn *sql.Conn) { require.Equal(t, "-5", pragma(t, conn, "a.cache_size")) })
	})
	t.Run("detached meanwhile", func(t *testing.T) {
		db, _ := openSQLite(t, false, filepath.Join(dir, "y.db"), 4)
		execute(t, db, attach)
		size := begin(t, db, "PRAGMA a.cache_size = -5")
		execute(t, db, "DETACH a")
		require.NoError(t, size.Close())
		everyConn(t, db, 4, func(conn *sql.Conn) {
			_, err := conn.ExecContext(t.Context(), "SELECT * FROM a.sqlite_schema")
			require.ErrorContains(t, err, "no such table: a.sqlite_schema")
		})
		execute(t, db, attach)
		everyConn(t, db, 4, func(conn *sql.Conn) { require.Equal(t, "-2000", pragma(t, conn, "a.cache_size")) })
	})
}

// lazyConn executes a query when its first row is read, as mattn/go-sqlite3 does.
type lazyConn struct{ driver.Conn }

func (c lazyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return &lazyRows{run: func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	}}, nil
}

type lazyRows struct {
	driver.Rows
	run func() (driver.Rows, error)
}

func (*lazyRows) Columns() []string { return []string{"x"} }

func (r *lazyRows) Next(dest []driver.Value) (err error) {
	if r.Rows == nil {
		if r.Rows, err = r.run(); err != nil {
			return err
		}
	}
	return r.Rows.Next(dest)
}

func (r *lazyRows) Close() error {
	if r.Rows == nil {
		return nil
	}
	return r.Rows.Close()
}

type lazySQLite struct{ bareSQLite }

func (l lazySQLite) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.bareSQLite.Connect(ctx)
	return lazyConn{conn}, err
}

func TestASettingThatFailedWithItsFirstRowIsNobodys(t *testing.T) {
	dir := t.TempDir()
	c := pooldriver.Wrap(lazySQLite{bareSQLite{filepath.Join(dir, "x.db"), registeredSQLite()}}, quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	err := db.QueryRow("ATTACH '" + filepath.Join(dir, "none", "a.db") + "' AS a").Scan(new(string))
	require.ErrorContains(t, err, "unable to open database")
	everyConn(t, db, 2, func(*sql.Conn) {})
}

func TestAPragmaThatIsNotKnownToHoldIsToldOf(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		for _, text := range []string{"PRAGMA journal_mode = WAL", "PRAGMA foreign_keys = 0", "DETACH none", "PRAGMA user_version = 5", "PRAGMA auto_vacuum = FULL"} {
			_, _ = db.Exec(text)
			require.Zero(t, c.Stats().StateDropped, text)
		}
		for i, text := range []string{"PRAGMA no_such_thing = 1", "PRAGMA foreign_keys = 1; PRAGMA no_such_thing = 1",
			"PRAGMA temp_store = MEMORY; CREATE TEMP TABLE x (a)"} {
			_, err := db.Exec(text)
			require.NoError(t, err)
			require.EqualValues(t, i+1, c.Stats().StateDropped, text)
		}
		everyConn(t, db, max, func(conn *sql.Conn) {
			require.Equal(t, []string{"1", "2"}, []string{pragma(t, conn, "foreign_keys"), pragma(t, conn, "temp_store")})
		})
	})
}

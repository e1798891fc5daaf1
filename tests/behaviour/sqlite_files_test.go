package behaviour

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// countIn is how many rows the table t of a file has, asked by the bare driver.
func countIn(t *testing.T, file string) (n int) {
	t.Helper()
	bare, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer bare.Close()
	require.NoError(t, bare.QueryRow("SELECT count(*) FROM t").Scan(&n))
	return n
}

// TestTheFileOfSQLiteHasEverythingWhenItsPoolIsClosed: the last connection that closes copies
// the write-ahead log into the file, also where several are closed at once. Whoever copies the
// file then has all of it.
func TestTheFileOfSQLiteHasEverythingWhenItsPoolIsClosed(t *testing.T) {
	ends := map[string]func(*sql.DB, *pooldriver.Connector) error{
		"DB.Close": func(db *sql.DB, _ *pooldriver.Connector) error { return db.Close() },
		"Drain": func(db *sql.DB, c *pooldriver.Connector) error {
			if err := c.Drain(context.Background()); err != nil {
				return err
			}
			return db.Close()
		},
		"Flush": func(db *sql.DB, c *pooldriver.Connector) error {
			c.Flush()
			return db.Close()
		},
	}
	for _, wrap := range []bool{false, true} {
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s wrap=%t", name, wrap), func(t *testing.T) {
				t.Parallel()
				for round := range 30 {
					file := filepath.Join(t.TempDir(), "x.db")
					db, c := openSQLite(t, wrap, file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)", 2)
					_, err := db.Exec("CREATE TABLE t (a integer)")
					require.NoError(t, err)
					var all sync.WaitGroup
					for range 2 {
						all.Go(func() {
							for i := range 5 {
								if _, err := db.Exec("INSERT INTO t VALUES (?)", i); err != nil {
									t.Error(err)
								}
							}
						})
					}
					for i := range 3 { // an interrupted connection copies nothing, unless it is told to go on
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*round)*5*time.Microsecond)
							defer cancel()
							_, _ = db.ExecContext(ctx, "UPDATE t SET a = a")
						})
					}
					all.Wait()
					require.NoError(t, end(db, c))
					require.NoFileExists(t, file+"-wal")
					alone := filepath.Join(t.TempDir(), "copy.db")
					content, err := os.ReadFile(file)
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(alone, content, 0o600))
					require.Equal(t, 10, countIn(t, alone))
				}
			})
		}
	}
}

// TestAConnectionOfSQLiteThatIsReplacedLocksNobodyOut: a program of one goroutine never meets
// itself, whatever we open and close behind its back.
func TestAConnectionOfSQLiteThatIsReplacedLocksNobodyOut(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		for _, max := range []int{1, 3} {
			t.Run(fmt.Sprintf("wrap=%t max=%d", wrap, max), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "x.db")
				db, c := openSQLite(t, wrap, file+"?_busy_timeout=0&_pragma=journal_mode(wal)", max)
				_, err := db.Exec("CREATE TABLE t (a integer)")
				require.NoError(t, err)
				opened := c.Stats().Pool.Creates
				for i := range 200 {
					_, err := db.Exec("INSERT INTO t VALUES (?)", i)
					require.NoError(t, err)
					_, err = db.Exec("CREATE TEMP TABLE IF NOT EXISTS own (a)") // its connection is closed
					require.NoError(t, err)
				}
				require.Greater(t, c.Stats().Pool.Creates, opened+100)
				require.NoError(t, db.Close())
				require.Equal(t, 200, countIn(t, file))
			})
		}
	}
}

// TestOurOwnFormOfDSNWaitsForALock, 5 s by default, and the driver's own form does not.
func TestOurOwnFormOfDSNWaitsForALock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	for dsn, want := range map[string]int{"sqlite:" + file: 5000, "sqlite:" + file + "?_pragma=busy_timeout(7)": 7, "file:" + file: 0, file: 0} {
		db := sql.OpenDB(pooldriver.New(dsn, quiet))
		var got int
		require.NoError(t, db.QueryRow("PRAGMA busy_timeout").Scan(&got))
		require.Equal(t, want, got, dsn)
		require.NoError(t, db.Close())
	}
}

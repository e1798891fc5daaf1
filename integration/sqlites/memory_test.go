// Package sqlites runs SQLite's dialect over drivers that no dialect of ours links, by Wrap:
// ncruces/go-sqlite3 and glebarez/go-sqlite. The second registers the name "sqlite", so this program
// must not link dialects/sqlite, whose driver registers it, too. It needs no server.
package sqlites

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/vfs/memdb"

	_ "github.com/pooldriver/pooldriver/dialects/anysqlite"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// databases are in memory: the driver, the name, and how many connections see the same one.
var databases = []struct {
	driver, name string
	max          int
}{
	{"sqlite3", ":memory:", 1},
	{"sqlite3", "file:/wrapped?vfs=memdb", 4},
	{"sqlite", ":memory:", 1},
	{"sqlite", "file:wrapped?mode=memory&cache=shared", 4},
	{"sqlite", "file:/wrapped?vfs=memdb", 4},
}

type connector struct {
	driver driver.Driver
	name   string
}

func (c connector) Driver() driver.Driver                        { return c.driver }
func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.name) }

// wrap returns a pool with a table of one row.
func wrap(t *testing.T, driverName, name string, options ...pooldriver.Option) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	bare, err := sql.Open(driverName, name)
	require.NoError(t, err)
	defer bare.Close()
	quiet := func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }
	c := pooldriver.Wrap(connector{bare.Driver(), name}, append([]pooldriver.Option{quiet}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	mustExec(t, db, "create table kept (a int)")
	mustExec(t, db, "insert into kept values (7)")
	return c, db
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	_, err := db.Exec(text, args...)
	require.NoError(t, err, text)
}

func requireKept(t *testing.T, db *sql.DB, after string) {
	t.Helper()
	var a int
	require.NoError(t, db.QueryRow("select a from kept").Scan(&a), "after %s", after)
	require.Equal(t, 7, a, "after %s", after)
}

const endless = "with recursive n(i) as (select 1 union all select i+1 from n) select count(*) from n"

// steps are what a program does between two looks at its table. They do no harm on the bare driver
// with one connection, unless lost is set.
var steps = []struct {
	what string
	lost bool
	do   func(t *testing.T, db *sql.DB)
}{
	{"PRAGMA table_info", false, func(t *testing.T, db *sql.DB) {
		rows, err := db.Query("PRAGMA table_info(kept)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, rows.Close())
	}},
	{"PRAGMA foreign_keys", false, func(t *testing.T, db *sql.DB) { mustExec(t, db, "PRAGMA foreign_keys = ON") }},
	{"ATTACH", false, func(t *testing.T, db *sql.DB) {
		mustExec(t, db, "ATTACH ? AS aside", "file:"+filepath.Join(t.TempDir(), "aside.db"))
		mustExec(t, db, "DETACH aside")
	}},
	{"a temporary table", false, func(t *testing.T, db *sql.DB) { mustExec(t, db, "CREATE TEMP TABLE aside (a int)") }},
	{"a write that was cancelled", false, func(t *testing.T, db *sql.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := db.ExecContext(ctx, "insert into kept "+endless)
		require.Error(t, err)
	}},
	// The bare drivers' connections have neither ResetSession nor IsValid: database/sql discards one
	// whose transaction was cancelled.
	{"a transaction that was cancelled", true, func(t *testing.T, db *sql.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.Exec("update kept set a = 8")
		require.NoError(t, err)
		cancel()
		_ = tx.Rollback()
		// database/sql may be rolling back still, in a goroutine of its own.
		require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 30*time.Second, time.Millisecond)
	}},
}

// TestADatabaseInMemoryLivesAsLongAsItsConnector, and on the bare driver with one connection.
func TestADatabaseInMemoryLivesAsLongAsItsConnector(t *testing.T) {
	for _, d := range databases {
		t.Run(fmt.Sprintf("%s %s", d.driver, d.name), func(t *testing.T) {
			if d.max == 1 {
				bare, err := sql.Open(d.driver, d.name)
				require.NoError(t, err)
				defer bare.Close()
				bare.SetMaxOpenConns(1)
				mustExec(t, bare, "create table kept as select 7 as a")
				for _, step := range steps {
					if !step.lost {
						step.do(t, bare)
						requireKept(t, bare, step.what)
					}
				}
			}
			c, db := wrap(t, d.driver, d.name, func(c *pooldriver.Config) { c.MaxConns = d.max })
			for _, step := range steps {
				step.do(t, db)
				requireKept(t, db, step.what)
			}
			c.Flush()
			requireKept(t, db, "Flush")
			mustExec(t, db, "BEGIN")
			requireKept(t, db, "BEGIN by hand")
			require.NoError(t, db.Close())
			_, again := wrap(t, d.driver, d.name) // makes the table, which must have gone
			requireKept(t, again, "another beginning")
		})
	}
}

func TestADatabaseInMemoryOutlivesTheAgeOfConnections(t *testing.T) {
	for _, d := range databases {
		t.Run(fmt.Sprintf("%s %s", d.driver, d.name), func(t *testing.T) {
			_, db := wrap(t, d.driver, d.name, func(c *pooldriver.Config) {
				c.MaxConns = d.max
				c.MaxConnIdleTime, c.HealthCheckPeriod = 10*time.Millisecond, 10*time.Millisecond
				c.MaxConnLifetime, c.MaxConnLifetimeJitter = time.Second, 0
			})
			time.Sleep(1300 * time.Millisecond)
			requireKept(t, db, "its lifetime")
		})
	}
}

// TestABusyFileIsAConflict, so that InTx runs the transaction again.
func TestABusyFileIsAConflict(t *testing.T) {
	for _, name := range []string{"sqlite", "sqlite3"} {
		t.Run(name, func(t *testing.T) {
			_, db := wrap(t, name, "file:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=busy_timeout(1)")
			other, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer other.Close()
			_, err = other.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			require.NoError(t, err)
			released := make(chan error, 1)
			time.AfterFunc(100*time.Millisecond, func() {
				_, err := other.ExecContext(context.Background(), "ROLLBACK")
				released <- err
			})
			require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "update kept set a = 7")
				return err
			}, pooldriver.Retry{}))
			require.NoError(t, <-released)
		})
	}
}

// TestATransactionThatACancelledWriteHasEndedIsLost: over the bare driver its next statements run in
// autocommit.
func TestATransactionThatACancelledWriteHasEndedIsLost(t *testing.T) {
	const long = "insert into kept with recursive n(i) as (select 1 union all select i+1 from n limit 10000000) select i from n"
	for _, name := range []string{"sqlite", "sqlite3"} {
		for what, write := range map[string]func(ctx context.Context, tx *sql.Tx) error{
			"exec": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, long)
				return err
			},
			"rows": func(ctx context.Context, tx *sql.Tx) error {
				return tx.QueryRowContext(ctx, long+" returning a").Scan(new(int))
			},
		} {
			if name == "sqlite" && what == "rows" {
				continue // glebarez interrupts no query before its first row
			}
			t.Run(name+" "+what, func(t *testing.T) {
				file := "file:" + filepath.Join(t.TempDir(), "x.db")
				_, db := wrap(t, name, file)
				bare, err := sql.Open(name, file)
				require.NoError(t, err)
				defer bare.Close()
				for _, on := range []*sql.DB{bare, db} {
					limit := 20 * time.Millisecond
					for ; !EndsItsTransaction(t, on, on == bare, limit, write); limit *= 2 { // it was over before the write began
						require.Less(t, limit, 2*time.Second)
					}
				}
				n := 0
				require.NoError(t, db.QueryRow("select count(*) from kept").Scan(&n))
				require.Equal(t, 2, n, "the bare driver's second one")
			})
		}
	}
}

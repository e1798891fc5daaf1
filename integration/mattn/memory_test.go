// Package mattn runs the SQLite dialect over github.com/mattn/go-sqlite3, by Wrap. It
// needs cgo, and no server.
package mattn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/anysqlite"
	"github.com/pooldriver/pooldriver/integration/sqlites"
)

// connector is what a program writes, for the driver has none.
type connector struct{ name string }

func (c connector) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.name) }

// inMemory are names of databases in memory, and how many of their connections see the
// same one.
var inMemory = map[string]int{
	":memory:":                              1,
	"":                                      1, // a temporary file
	"file:wrapped?mode=memory&cache=shared": 4,
	"file:/wrapped?vfs=memdb":               4,
}

func wrap(t *testing.T, name string, options ...pooldriver.Option) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	c := pooldriver.Wrap(connector{name}, append([]pooldriver.Option{quiet}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	mustExec(t, db, "create table kept (a int)")
	mustExec(t, db, "insert into kept values (7)")
	return c, db
}

func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

func mustExec(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	_, err := db.Exec(text)
	require.NoError(t, err, text)
}

func requireKept(t *testing.T, db *sql.DB, after string) {
	t.Helper()
	var a int
	require.NoError(t, db.QueryRow("select a from kept").Scan(&a), "after %s", after)
	require.Equal(t, 7, a, "after %s", after)
}

// requireAllSeeIt has every connection look.
func requireAllSeeIt(t *testing.T, db *sql.DB, max int) {
	t.Helper()
	conns := make([]*sql.Conn, max)
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		require.NoError(t, err)
		var a int
		require.NoError(t, conns[i].QueryRowContext(t.Context(), "select a from kept").Scan(&a))
		require.Equal(t, 7, a)
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
}

const endless = "with recursive n(i) as (select 1 union all select i+1 from n) select count(*) from n"

func cancelStatements(t *testing.T, db *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var n int
	require.Error(t, db.QueryRowContext(ctx, endless).Scan(&n))
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "insert into kept "+endless)
	require.Error(t, err)
}

func cancelTx(t *testing.T, db *sql.DB) {
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec("update kept set a = 8")
	require.NoError(t, err)
	cancel()
	_ = tx.Rollback()
	// database/sql may be rolling back still, in a goroutine of its own.
	require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 30*time.Second, time.Millisecond)
}

func TestADatabaseInMemoryLivesAsLongAsItsConnector(t *testing.T) {
	for name, max := range inMemory {
		t.Run(name, func(t *testing.T) {
			c, db := wrap(t, name, func(c *pooldriver.Config) { c.MaxConns = max })
			mustExec(t, db, "PRAGMA foreign_keys = ON")
			requireKept(t, db, "a PRAGMA")
			mustExec(t, db, "CREATE TEMP TABLE aside (a int)")
			requireKept(t, db, "a temporary table")
			c.Flush()
			requireKept(t, db, "Flush")
			cancelStatements(t, db)
			requireKept(t, db, "statements that were cancelled")
			cancelTx(t, db)
			requireKept(t, db, "a transaction that was cancelled")
			ctx, end := pooldriver.WithTask(t.Context())
			_, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = db.ExecContext(ctx, "update kept set a = 9")
			require.NoError(t, err)
			end()
			requireKept(t, db, "a task that has left a transaction")
			requireAllSeeIt(t, db, max)
			require.NoError(t, db.Close())
			_, again := wrap(t, name) // makes the table, which must have gone
			requireKept(t, again, "another beginning")
		})
	}
}

// The question that asks SQLite whether a transaction is open is understood here, too.
func TestATransactionThatWasLeftOpenIsSeen(t *testing.T) {
	for _, name := range []string{":memory:", "file:" + t.TempDir() + "/x.db"} {
		c, db := wrap(t, name, func(c *pooldriver.Config) { c.MaxConns = 1 })
		for i, begin := range []string{"BEGIN", "SAVEPOINT a", "/* hidden */ BEGIN IMMEDIATE"} {
			mustExec(t, db, begin)
			mustExec(t, db, fmt.Sprintf("insert into kept values (%d)", i)) // outside of it
			require.EqualValues(t, i+1, c.Stats().Rollbacks, begin)
		}
		require.Zero(t, c.Stats().Discards)
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("insert into kept values (3)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		var n int
		require.NoError(t, db.QueryRow("select count(*) from kept").Scan(&n))
		require.Equal(t, 5, n)
		require.EqualValues(t, 3, c.Stats().Rollbacks)
	}
}

// TestATransactionThatACancelledWriteHasEndedIsLost: over the bare driver its next statements run in
// autocommit.
func TestATransactionThatACancelledWriteHasEndedIsLost(t *testing.T) {
	const long = "insert into kept with recursive n(i) as (select 1 union all select i+1 from n limit 10000000) select i from n"
	for what, write := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"exec": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, long)
			return err
		},
		"rows": func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, long+" returning a").Scan(new(int))
		},
	} {
		t.Run(what, func(t *testing.T) {
			file := "file:" + filepath.Join(t.TempDir(), "x.db")
			_, db := wrap(t, file)
			bare, err := sql.Open("sqlite3", file)
			require.NoError(t, err)
			defer bare.Close()
			for _, on := range []*sql.DB{bare, db} {
				limit := 20 * time.Millisecond
				for ; !sqlites.EndsItsTransaction(t, on, on == bare, limit, write); limit *= 2 { // it was over before the write began
					require.Less(t, limit, 2*time.Second)
				}
			}
			n := 0
			require.NoError(t, db.QueryRow("select count(*) from kept").Scan(&n))
			require.Equal(t, 2, n, "the bare driver's second one")
		})
	}
}

package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// inMemory are names of databases in memory, and how many of their connections see the
// same one.
var inMemory = map[string]int{
	":memory:":                              1,
	"":                                      1, // a temporary file
	"file:wrapped?mode=memory&cache=shared": 4,
	"file:/wrapped?vfs=memdb":               4,
}

// wrapMemory returns a pool over the bare driver's connector, with a table of one row.
func wrapMemory(t *testing.T, name string, options ...pooldriver.Option) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	inner, err := sqlite.NewConnector(name)
	require.NoError(t, err)
	return holdMemory(t, inner, options...)
}

func holdMemory(t *testing.T, inner driver.Connector, options ...pooldriver.Option) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	c := pooldriver.Wrap(inner, append([]pooldriver.Option{quiet}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	mustExec(t, t.Context(), db, "create table kept (a int)")
	mustExec(t, t.Context(), db, "insert into kept values (7)")
	return c, db
}

func requireKept(t *testing.T, db *sql.DB, after string) {
	t.Helper()
	var a int
	require.NoError(t, db.QueryRow("select a from kept").Scan(&a), "after %s", after)
	require.Equal(t, 7, a, "after %s", after)
}

func TestAWrappedDatabaseInMemoryLivesAsLongAsItsConnector(t *testing.T) {
	for name, max := range inMemory {
		t.Run(name, func(t *testing.T) {
			c, db := wrapMemory(t, name, func(c *pooldriver.Config) { c.MaxConns = max })
			mustExec(t, t.Context(), db, "PRAGMA foreign_keys = ON")
			requireKept(t, db, "a PRAGMA")
			mustExec(t, t.Context(), db, "CREATE TEMP TABLE aside (a int)")
			requireKept(t, db, "a temporary table")
			c.Flush()
			requireKept(t, db, "Flush")
			leaveOpen(t, db)
			requireKept(t, db, "BEGIN by hand")
			cancelStatement(t, db)
			requireKept(t, db, "a statement that was cancelled")
			cancelTx(t, db)
			requireKept(t, db, "a transaction that was cancelled")
			wrapTask(t, db)
			requireKept(t, db, "a task that has left a transaction")
			require.NoError(t, db.Close())
			_, again := wrapMemory(t, name) // makes the table, which must have gone
			requireKept(t, again, "another beginning")
		})
	}
}

const endless = "with recursive n(i) as (select 1 union all select i+1 from n) select count(*) from n"

func cancelStatement(t *testing.T, db *sql.DB) {
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
	require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, patience, time.Millisecond)
}

func wrapTask(t *testing.T, db *sql.DB) {
	ctx, end := pooldriver.WithTask(t.Context())
	_, err := db.ExecContext(ctx, "create temp table of_task (a int)")
	require.NoError(t, err)
	_, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "update kept set a = 9")
	require.NoError(t, err)
	end()
}

func TestAWrappedDatabaseInMemoryOutlivesTheAgeOfConnections(t *testing.T) {
	for name, max := range inMemory {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, db := wrapMemory(t, name, func(c *pooldriver.Config) {
				c.MaxConns = max
				c.MaxConnIdleTime, c.HealthCheckPeriod = 10*time.Millisecond, 10*time.Millisecond
				c.MaxConnLifetime, c.MaxConnLifetimeJitter = time.Second, 0
			})
			time.Sleep(100 * time.Millisecond)
			requireKept(t, db, "lying idle")
			time.Sleep(1200 * time.Millisecond)
			requireKept(t, db, "its lifetime")
		})
	}
}

func TestConnectionsOfAWrappedSharedDatabaseInMemorySeeTheSame(t *testing.T) {
	for name, max := range inMemory {
		if max == 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c, db := wrapMemory(t, name, func(c *pooldriver.Config) { c.MaxConns = max })
			for range max {
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				var a int
				require.NoError(t, conn.QueryRowContext(t.Context(), "select a from kept").Scan(&a))
				require.Equal(t, 7, a)
			}
			require.Equal(t, max, c.Stats().Pool.Count)
		})
	}
}

// TestALookWhetherAWrappedDatabaseIsSharedCommitsNothing that a hook of the program's would hear.
func TestALookWhetherAWrappedDatabaseIsSharedCommitsNothing(t *testing.T) {
	for name := range inMemory {
		inner, err := sqlite.NewConnector(name)
		require.NoError(t, err)
		var commits atomic.Int32
		db := sql.OpenDB(pooldriver.Wrap(hearing{inner, func() { commits.Add(1) }}, quiet))
		require.NoError(t, db.Ping())
		require.Zero(t, commits.Load(), name)
		mustExec(t, t.Context(), db, "create table kept (a int)")
		require.EqualValues(t, 1, commits.Load(), name)
		require.NoError(t, db.Close())
	}
}

// hearing tells of every commit on its connections.
type hearing struct {
	driver.Connector
	commit func()
}

func (h hearing) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	if err == nil {
		conn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 { h.commit(); return 0 })
	}
	return conn, err
}

// A program that keeps to one connection by database/sql's means has one database.
func TestOneConnectionAtATimeOfAPrivateDatabaseIsAlwaysTheSame(t *testing.T) {
	c, db := wrapMemory(t, ":memory:")
	db.SetMaxOpenConns(1)
	for range 50 {
		mustExec(t, t.Context(), db, "PRAGMA foreign_keys = ON")
		leaveOpen(t, db) // rolled back before the next
		cancelTx(t, db)
		requireKept(t, db, "what has to be undone")
	}
	require.Equal(t, pool.Stats{}.Destroyed, c.Stats().Pool.Destroyed)
	require.Equal(t, 1, c.Stats().Pool.Count)
}

// Its state is the program's own, as on one connection of the bare driver.
func TestStateOfAPrivateDatabaseStays(t *testing.T) {
	c, db := wrapMemory(t, ":memory:", func(c *pooldriver.Config) { c.MaxConns = 1 })
	mustExec(t, t.Context(), db, "CREATE TEMP TABLE aside AS SELECT 5 AS b")
	var b int
	require.NoError(t, db.QueryRow("select b from aside").Scan(&b))
	require.Equal(t, 5, b)
	require.Zero(t, c.Stats().StateDropped)
}

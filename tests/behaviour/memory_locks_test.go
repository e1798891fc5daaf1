package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
)

// beside are things that a program does with two tables, a with three rows and b without, on more
// than one connection.
var beside = map[string]func(t *testing.T, ctx context.Context, db *sql.DB){
	"rows of one table, writes to the other": func(t *testing.T, ctx context.Context, db *sql.DB) {
		rows := mustQuery(t, ctx, db, "select x from a")
		defer rows.Close()
		for rows.Next() {
			var x int
			require.NoError(t, rows.Scan(&x))
			mustExec(t, ctx, db, "insert into b values (?)", x)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, countOf(t, ctx, db, "b"))
	},
	"rows of one table, transactions on the other": func(t *testing.T, ctx context.Context, db *sql.DB) {
		rows := mustQuery(t, ctx, db, "select x from a")
		defer rows.Close()
		for rows.Next() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, ctx, tx, "insert into b values (1)")
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, countOf(t, ctx, db, "b"))
	},
	"a transaction that has read, a write to the other table": func(t *testing.T, ctx context.Context, db *sql.DB) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		require.Equal(t, 3, countOf(t, ctx, tx, "a"))
		mustExec(t, ctx, db, "insert into b values (1)")
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, countOf(t, ctx, db, "b"))
	},
	"a transaction whose rows are open, a write to the other table": func(t *testing.T, ctx context.Context, db *sql.DB) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		rows := mustQuery(t, ctx, tx, "select x from a")
		require.True(t, rows.Next())
		mustExec(t, ctx, db, "insert into b values (1)")
		require.NoError(t, rows.Close())
		require.NoError(t, tx.Commit())
	},
	"a transaction that has written, reads of the other table": func(t *testing.T, ctx context.Context, db *sql.DB) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		mustExec(t, ctx, tx, "insert into a values (4)")
		require.Zero(t, countOf(t, ctx, db, "b"))
		rows := mustQuery(t, ctx, db, "select x from b")
		require.NoError(t, tx.Commit())
		require.NoError(t, rows.Close())
		require.Equal(t, 4, countOf(t, ctx, db, "a"))
	},
	"a transaction that has written more than the cache holds, reads of the other table": func(t *testing.T, ctx context.Context, db *sql.DB) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		for range 5 {
			mustExec(t, ctx, tx, "insert into a values (zeroblob(500000))")
		}
		require.Zero(t, countOf(t, ctx, db, "b"))
		require.NoError(t, tx.Commit())
	},
	"read_uncommitted": func(t *testing.T, ctx context.Context, db *sql.DB) {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		mustExec(t, ctx, conn, "pragma read_uncommitted = 1")
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		mustExec(t, ctx, tx, "insert into a values (4)")
		require.Equal(t, 4, countOf(t, ctx, conn, "a"))
		require.NoError(t, tx.Rollback())
		require.Equal(t, 3, countOf(t, ctx, conn, "a"))
	},
}

// alone is what waits for itself on the bare driver.
var alone = map[string]func(t *testing.T, ctx context.Context, db *sql.DB){
	"rows of a table, writes to the same": func(t *testing.T, ctx context.Context, db *sql.DB) {
		rows := mustQuery(t, ctx, db, "select x from a order by x")
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var x int
			require.NoError(t, rows.Scan(&x))
			mustExec(t, ctx, db, "update a set x = x + 10 where x = ?", x)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, n)
	},
	"rows of a table, transactions on the same, by a prepared statement": func(t *testing.T, ctx context.Context, db *sql.DB) {
		stmt, err := db.PrepareContext(ctx, "insert into a values (?)")
		require.NoError(t, err)
		defer stmt.Close()
		rows := mustQuery(t, ctx, db, "select x from a")
		defer rows.Close()
		for rows.Next() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.StmtContext(ctx, stmt).ExecContext(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 6, countOf(t, ctx, db, "a"))
	},
	"rows of a table, and its end": func(t *testing.T, ctx context.Context, db *sql.DB) {
		rows := mustQuery(t, ctx, db, "select x from a")
		defer rows.Close()
		require.True(t, rows.Next())
		mustExec(t, ctx, db, "drop table b")
		mustExec(t, ctx, db, "drop table a")
		require.True(t, rows.Next())
		require.NoError(t, rows.Close())
	},
	"rows in a task, writes to the same": func(t *testing.T, ctx context.Context, db *sql.DB) {
		ctx, end := pooldriver.WithTask(ctx)
		defer end()
		rows := mustQuery(t, ctx, db, "select x from a")
		defer rows.Close()
		for rows.Next() {
			mustExec(t, ctx, db, "insert into a values (9)")
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 6, countOf(t, ctx, db, "a"))
	},
}

func mustQuery(t *testing.T, ctx context.Context, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, text string) *sql.Rows {
	t.Helper()
	rows, err := db.QueryContext(ctx, text)
	require.NoError(t, err)
	return rows
}

func countOf(t *testing.T, ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, table string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, "select count(*) from "+table).Scan(&n))
	return n
}

// twoTables gives db its tables. Where f waits for a lock of its own, that ends in an error: of the busy timeout, or
// of the context where there is none.
func twoTables(t *testing.T, db *sql.DB, f func(t *testing.T, ctx context.Context, db *sql.DB)) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mustExec(t, ctx, db, "create table a (x); create table b (x); insert into a values (1), (2), (3)")
	f(t, ctx, db)
}

// TestADatabaseInMemoryIsLockedByTables as over the bare driver, whose private databases have one
// connection.
func TestADatabaseInMemoryIsLockedByTables(t *testing.T) {
	t.Parallel()
	names := 0
	shared := func() string {
		names++
		return fmt.Sprintf("file:locked_by_tables_%d?mode=memory&cache=shared", names)
	}
	for name, f := range beside {
		bare, err := sql.Open("sqlite", shared())
		require.NoError(t, err)
		t.Run("bare/"+name, func(t *testing.T) { twoTables(t, bare, f) })
		t.Run("Wrap/"+name, func(t *testing.T) { db, _ := openSQLite(t, true, shared(), 4); twoTables(t, db, f) })
		t.Run("New/"+name, func(t *testing.T) { twoTables(t, sql.OpenDB(pooldriver.New(shared(), quiet)), f) })
		t.Run("New, private/"+name, func(t *testing.T) { twoTables(t, sql.OpenDB(pooldriver.New(":memory:", quiet)), f) })
	}
	for name, f := range alone {
		t.Run("Wrap/"+name, func(t *testing.T) { db, _ := openSQLite(t, true, shared(), 4); twoTables(t, db, f) })
		t.Run("New/"+name, func(t *testing.T) { twoTables(t, sql.OpenDB(pooldriver.New(shared(), quiet)), f) })
		t.Run("New, private/"+name, func(t *testing.T) { twoTables(t, sql.OpenDB(pooldriver.New(":memory:", quiet)), f) })
		t.Run("New, memdb/"+name, func(t *testing.T) {
			twoTables(t, sql.OpenDB(pooldriver.New(fmt.Sprintf("file:/locked_by_tables_%p?vfs=memdb", t), quiet)), f)
		})
	}
}

// TestASharedNameInMemoryIsTheBareDrivers: both see the same database, which lives as long as the
// Connector.
func TestASharedNameInMemoryIsTheBareDrivers(t *testing.T) {
	const dsn = "file:seen_by_both?mode=memory&cache=shared"
	c := pooldriver.New(dsn, quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	mustExec(t, t.Context(), db, "create table kept as select 7 as a")
	c.Flush()
	bare, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	defer bare.Close()
	mustExec(t, t.Context(), bare, "update kept set a = 8")
	var a int
	require.NoError(t, db.QueryRow("select a from kept").Scan(&a))
	require.Equal(t, 8, a)
}

// TestTransactionsInMemoryThatLockEachOtherAreRunAgain: each has read the table that both write to.
func TestTransactionsInMemoryThatLockEachOtherAreRunAgain(t *testing.T) {
	t.Parallel()
	c := pooldriver.New(":memory:", quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	mustExec(t, t.Context(), db, "create table counter as select 0 as n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const workers, rounds = 4, 10
	var all sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		all.Go(func() {
			for range rounds {
				err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
					var n int
					if err := tx.QueryRowContext(ctx, "select n from counter").Scan(&n); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, "update counter set n = ?", n+1)
					return err
				}, pooldriver.Retry{})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	require.NoError(t, <-errs)
	var n int
	require.NoError(t, db.QueryRow("select n from counter").Scan(&n))
	require.Equal(t, workers*rounds, n)
}

// TestManyUseADatabaseInMemory that has one table: each reads rows and writes meanwhile.
func TestManyUseADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(pooldriver.New(":memory:", quiet))
	defer db.Close()
	mustExec(t, t.Context(), db, "create table a (x, by)")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const workers, rounds = 8, 20
	var all sync.WaitGroup
	errs := make(chan error, workers)
	for who := range workers {
		all.Go(func() {
			for i := range rounds {
				if err := writeUnderRows(ctx, db, who, i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	require.NoError(t, <-errs)
	require.Equal(t, workers*rounds, countOf(t, ctx, db, "a where x >= 0"))
}

// writeUnderRows inserts a row, and another for each row that it finds.
func writeUnderRows(ctx context.Context, db *sql.DB, who, i int) error {
	if _, err := db.ExecContext(ctx, "insert into a values (?, ?)", i, who); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, "select x from a where x >= 0 order by x limit 10")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "insert into a values (-1, ?)", who); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// waits are what one goroutine cannot do in a shared cache, beside a transaction that has done
// something: docs/transparency.md.
var waits = []struct{ inTx, beside string }{
	{"insert into a values (4)", "select count(*) from a"},
	{"select * from a", "insert into a values (4)"},
	{"insert into a values (4)", "insert into b values (4)"},
	{"select * from a", "create table c (x)"},
	{"create table c (x)", "select count(*) from b"},
}

// TestAWaitForATableInMemoryEndsWithItsContext, as over the bare driver. The connection stays usable.
func TestAWaitForATableInMemoryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for i, w := range waits {
		name := fmt.Sprintf("file:waits_%d?mode=memory&cache=shared", i)
		bare, err := sql.Open("sqlite", name)
		require.NoError(t, err)
		for how, db := range map[string]*sql.DB{
			"bare": bare, "New": sql.OpenDB(pooldriver.New(fmt.Sprintf("file:waits_of_new_%d?mode=memory&cache=shared", i), quiet)), "New, private": sql.OpenDB(pooldriver.New(":memory:", quiet)),
		} {
			twoTables(t, db, func(t *testing.T, ctx context.Context, db *sql.DB) {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer tx.Rollback()
				mustExec(t, ctx, tx, w.inTx)
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				_, err = db.ExecContext(short, w.beside)
				require.ErrorIs(t, err, context.DeadlineExceeded, "%s: %s beside %s", how, w.beside, w.inTx)
				require.NoError(t, tx.Rollback())
				mustExec(t, ctx, db, w.beside)
			})
		}
	}
}

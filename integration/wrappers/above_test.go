package wrappers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// eachAbove runs the test with each library above pooldriver, on each database, with a
// table ledger.
func eachAbove(t *testing.T, max int, test func(t *testing.T, p place, db *sql.DB, c *pooldriver.Connector, seen func() int)) {
	t.Parallel()
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			eachPlace(t, func(t *testing.T, p place) {
				c := pooldriver.New(p.dsn, quiet, limit(max))
				wrapped, seen := l.over(t, c)
				db := openDB(t, wrapped, c)
				mustExec(t, t.Context(), db, "CREATE TABLE ledger (id integer)")
				test(t, p, db, c, seen)
			})
		})
	}
}

func TestRawFindsTheDriversConnectionBeneathALibrary(t *testing.T) {
	eachAbove(t, 2, func(t *testing.T, p place, db *sql.DB, _ *pooldriver.Connector, _ func() int) {
		want, err := p.driver.Open(p.bare)
		require.NoError(t, err)
		defer want.Close()
		for _, inTask := range []bool{false, true} {
			ctx := t.Context()
			if inTask {
				task, end := pooldriver.WithTask(ctx)
				defer end()
				ctx = task
			}
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			tx, err := conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				require.IsType(t, want, dc)
				_, err := dc.(driver.ExecerContext).ExecContext(ctx, "INSERT INTO ledger VALUES (1)", nil)
				return err
			}))
			require.EqualValues(t, 1, number(t, ctx, tx, "SELECT count(*) FROM ledger"), "it is the session of conn")
			require.NoError(t, tx.Rollback())
			require.Zero(t, number(t, ctx, conn, "SELECT count(*) FROM ledger"))
			require.NoError(t, conn.Close())
		}
	})
}

func TestInTxAndTasksWorkBeneathALibrary(t *testing.T) {
	eachAbove(t, 2, func(t *testing.T, p place, db *sql.DB, c *pooldriver.Connector, seen func() int) {
		insert := "INSERT INTO ledger VALUES (" + p.mark(1) + ")"
		before, no := seen(), errors.New("no")
		require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
			mustExec(t, ctx, db, insert, 1)
			return errors.Join(
				pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
					mustExec(t, ctx, db, insert, 2)
					return nil
				}),
				errIsNot(no, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
					mustExec(t, ctx, db, insert, 3)
					return no
				})),
			)
		}))
		require.EqualValues(t, 2, number(t, t.Context(), db, "SELECT count(*) FROM ledger WHERE id < 3"))
		require.Zero(t, number(t, t.Context(), db, "SELECT count(*) FROM ledger WHERE id = 3"))
		require.GreaterOrEqual(t, seen()-before, 3, "the library has seen the statements")

		ctx, end := pooldriver.WithTask(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, db, insert, 4)
		require.EqualValues(t, 3, number(t, ctx, tx, "SELECT count(*) FROM ledger"), "db joins tx")
		end()
		require.Error(t, tx.Commit())
		_, err = db.ExecContext(context.WithoutCancel(ctx), insert, 5)
		require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
		for range 4 {
			require.EqualValues(t, 2, number(t, t.Context(), db, "SELECT count(*) FROM ledger"), "others are not of the task")
		}
	})
}

// errIsNot returns err if it is not the one that was wanted.
func errIsNot(want, err error) error {
	if errors.Is(err, want) {
		return nil
	}
	return err
}

// TestNothingLeaksBeneathALibrary: with one connection, so that the next borrower has the
// last one's.
func TestNothingLeaksBeneathALibrary(t *testing.T) {
	eachAbove(t, 1, func(t *testing.T, p place, db *sql.DB, c *pooldriver.Connector, _ func() int) {
		mustExec(t, t.Context(), db, "CREATE TEMPORARY TABLE mine (id integer)")
		_, err := db.ExecContext(t.Context(), "INSERT INTO mine VALUES (1)")
		require.Error(t, err)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), conn, "CREATE TEMPORARY TABLE mine (id integer)")
		mustExec(t, t.Context(), conn, "INSERT INTO mine VALUES (1)")
		require.EqualValues(t, 1, number(t, t.Context(), conn, "SELECT count(*) FROM mine"), "a *sql.Conn keeps it")
		require.NoError(t, conn.Close())
		_, err = db.ExecContext(t.Context(), "INSERT INTO mine VALUES (1)")
		require.Error(t, err)
		require.LessOrEqual(t, c.Stats().Pool.Count, 1)
	})
}

func TestNestedQueriesCompleteBeneathALibrary(t *testing.T) {
	eachAbove(t, 1, func(t *testing.T, p place, db *sql.DB, c *pooldriver.Connector, _ func() int) {
		for i := range 3 {
			mustExec(t, t.Context(), db, "INSERT INTO ledger VALUES ("+p.mark(1)+")", i)
		}
		rows, err := db.QueryContext(t.Context(), "SELECT id FROM ledger")
		require.NoError(t, err)
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var id int
			require.NoError(t, rows.Scan(&id))
			mustExec(t, t.Context(), db, "UPDATE ledger SET id = id + 10 WHERE id = "+p.mark(1), id)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, n)
		require.EqualValues(t, 33, number(t, t.Context(), db, "SELECT sum(id) FROM ledger"))
	})
}

// TestOtelsqlClosesTheConnectorBeneath: its OpenDB, as its manual has it.
func TestOtelsqlClosesTheConnectorBeneath(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		c := pooldriver.New(p.dsn, quiet)
		db := otelsql.OpenDB(c)
		require.NoError(t, db.PingContext(t.Context()))
		require.Equal(t, 1, c.Stats().Pool.Count)
		require.NoError(t, db.Close())
		require.Zero(t, c.Stats().Pool.Count)
	})
}

// TestOtelsqlOpenByNameGoesPastPooldriver: it asks the *sql.DB for its driver, which is the
// database's own (docs/wrappers.md).
func TestOtelsqlOpenByNameGoesPastPooldriver(t *testing.T) {
	t.Parallel()
	db, err := otelsql.Open("pooldriver", "sqlite:"+t.TempDir()+"/x.db")
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err == nil {
		defer conn.Close()
		err = pooldriver.Raw(t.Context(), conn, func(driver.Conn) error { return nil })
	}
	require.Error(t, err)
}

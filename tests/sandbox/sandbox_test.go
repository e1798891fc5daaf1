package sandbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

type querier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func mustExec(t *testing.T, db querier, text string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), text, args...)
	require.NoError(t, err)
}

func count(t *testing.T, db querier) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT count(*) FROM ledger").Scan(&n))
	return n
}

func TestATestSeesOnlyWhatItHasWritten(t *testing.T) {
	c := onSQLite(t)
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			db := sandbox.DB(t, c)
			require.Same(t, db, sandbox.DB(t, c), "a test has one handle")
			require.Zero(t, count(t, db))
			mustExec(t, db, "INSERT INTO ledger VALUES (?, ?)", 1, "a")
			tx, err := db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO ledger VALUES (2, 'b')")
			require.NoError(t, tx.Commit())
			tx, err = db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO ledger VALUES (3, 'c')")
			require.NoError(t, tx.Rollback())
			require.Equal(t, 2, count(t, db))
		})
	}
}

// TestEveryHandleOverTheConnectorOfATestIsInItsSandbox: also a function of Raw that is the first of its *sql.Conn.
func TestEveryHandleOverTheConnectorOfATestIsInItsSandbox(t *testing.T) {
	c := onSQLite(t)
	t.Run("test", func(t *testing.T) {
		inside := sandbox.Connector(t, c)
		require.Same(t, inside, sandbox.Connector(t, c))
		own := sql.OpenDB(inside)
		mustExec(t, own, "INSERT INTO ledger VALUES (1, 'a')")
		require.Equal(t, 1, count(t, sandbox.DB(t, c)))
		conn, err := own.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
			_, err := dc.(driver.ExecerContext).ExecContext(t.Context(), "INSERT INTO ledger VALUES (2, 'b')", nil)
			return err
		}))
		require.NoError(t, conn.Close())
		require.Equal(t, 2, count(t, own))
		require.NoError(t, own.Close(), "it closes the connector of the sandbox alone")
	})
}

func TestTwoTransactionsInOneGoroutineAreAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		db := sandbox.DB(r, onSQLite(t))
		begun := time.Now()
		outer, err := db.Begin()
		require.NoError(t, err)
		_, err = db.Begin()
		require.ErrorContains(t, err, "a transaction would wait for ever")
		require.Equal(t, 2, strings.Count(err.Error(), "(sandbox_test.go:"), "both lines: %v", err)
		_, err = db.Exec("INSERT INTO ledger VALUES (1, 'a')")
		require.ErrorContains(t, err, "would wait for ever")
		require.Less(t, time.Since(begun), time.Second)
		mustExec(t, outer, "INSERT INTO ledger VALUES (1, 'a')")
		require.NoError(t, outer.Commit())
		require.Equal(t, 1, count(t, db))

		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, count(t, conn))
		_, err = db.Exec("DELETE FROM ledger")
		require.ErrorContains(t, err, "a *sql.Conn")
		require.NoError(t, conn.Close())
		require.Empty(t, r.end())
	})
}

func TestTransactionsOfATaskNest(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	outer, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	inner, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, inner, "INSERT INTO ledger VALUES (1, 'a')")
	require.NoError(t, inner.Rollback())
	mustExec(t, outer, "INSERT INTO ledger VALUES (2, 'a')")
	require.NoError(t, outer.Commit())
	require.Equal(t, 1, count(t, db))
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (3, 'a')")
		return err
	}))
	failed := errors.New("failed")
	require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		mustExec(t, tx, "DELETE FROM ledger")
		return failed
	}), failed)
	require.Equal(t, 2, count(t, db))
}

func TestNestedQueriesComplete(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a'), (2, 'b'), (3, 'c')")
	rows, err := db.Query("SELECT id FROM ledger")
	require.NoError(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		n += count(t, db)
		mustExec(t, db, "UPDATE ledger SET note = 'seen' WHERE id = ?", id)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 9, n)
}

func TestGoroutinesTakeTurns(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			tx, err := db.Begin()
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback()
			if _, err := tx.Exec("INSERT INTO ledger VALUES (?, 'a')", i); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 20, count(t, db))
}

func TestWhoeverWaitsWhileNothingMovesGetsBothStacks(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t, func(c *pooldriver.Config) { c.DeadlockAfter = 50 * time.Millisecond }))
	tx, err := db.Begin()
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		_, err := db.Exec("DELETE FROM ledger")
		failed <- err
	}()
	err = <-failed
	require.ErrorIs(t, err, pooldriver.ErrTimeout)
	require.ErrorContains(t, err, "nothing has moved")
	require.Equal(t, 2, strings.Count(err.Error(), "(sandbox_test.go:"), "%v", err)
	require.NoError(t, tx.Rollback())
}

func TestAStatementAfterTheTestIsAnErrorWithItsName(t *testing.T) {
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	stmt, err := db.Prepare("SELECT count(*) FROM ledger")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	require.Empty(t, r.end())
	_, err = db.Exec("INSERT INTO ledger VALUES (1, 'a')")
	require.ErrorContains(t, err, "the test "+t.Name()+" has ended")
	require.ErrorContains(t, err, "(sandbox_test.go:")
	require.Empty(t, r.late)
	require.Eventually(t, func() bool { return db.Ping().Error() == "sql: database is closed" }, 30*time.Second, 10*time.Millisecond, "a moment later")
}

func TestALateStatementOfAConnectionNamesTheTest(t *testing.T) {
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, conn, "INSERT INTO ledger VALUES (1, 'a')")
	require.Len(t, r.end(), 1)
	_, err = conn.ExecContext(t.Context(), "INSERT INTO ledger VALUES (1, 'a')")
	require.ErrorContains(t, err, "the test "+t.Name()+" has ended")
	require.ErrorContains(t, err, "(sandbox_test.go:")
	_ = conn.Close()
	require.Empty(t, r.late)
}

func TestWhatATestLeavesOpenFailsItWithTheLine(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, db *sql.DB){
		"a transaction that is open": func(t *testing.T, db *sql.DB) {
			tx, err := db.Begin()
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
			t.Cleanup(func() { _ = tx.Rollback() })
		},
		"rows that are open": func(t *testing.T, db *sql.DB) {
			mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
			rows, err := db.Query("SELECT * FROM ledger")
			require.NoError(t, err)
			require.True(t, rows.Next())
		},
		"a prepared statement that is open": func(t *testing.T, db *sql.DB) {
			_, err := db.Prepare("SELECT * FROM ledger")
			require.NoError(t, err)
		},
		"a *sql.Conn that is open": func(t *testing.T, db *sql.DB) {
			_, err := db.Conn(t.Context())
			require.NoError(t, err)
		},
		"a task that is open": func(t *testing.T, db *sql.DB) {
			ctx, end := pooldriver.WithTask(context.Background())
			t.Cleanup(end)
			_, err := db.ExecContext(ctx, "CREATE TEMP TABLE state (id integer)")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t)
			leave(t, sandbox.DB(r, onSQLite(t)))
			left := r.end()
			require.Len(t, left, 1)
			require.Contains(t, left[0], name)
			require.Contains(t, left[0], "sandbox_test.go:")
			require.Empty(t, r.late)
		})
	}
}

func TestASubtestIsALevelInItsTest(t *testing.T) {
	c := onSQLite(t)
	db := sandbox.DB(t, c)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			own := sandbox.DB(t, c)
			require.Equal(t, 1, count(t, own))
			mustExec(t, own, "INSERT INTO ledger VALUES (2, 'a')")
			_, err := db.Exec("DELETE FROM ledger")
			require.ErrorContains(t, err, "use the handle of the subtest")
			t.Run("deeper", func(t *testing.T) {
				deep := sandbox.DB(t, c)
				mustExec(t, deep, "DELETE FROM ledger")
				require.Zero(t, count(t, deep))
			})
			require.Equal(t, 2, count(t, own))
		})
	}
	require.Equal(t, 1, count(t, db))
}

func TestASubtestWithALevelCannotRunInParallel(t *testing.T) {
	c := onSQLite(t)
	r := record(t)
	sandbox.DB(r, c)
	beside := &recorder{TB: t, name: t.Name() + "/parallel", isParallel: true}
	require.Contains(t, fatally(t, func() { sandbox.DB(beside, c) }), "leave out t.Parallel")
	other := &recorder{TB: t, name: t.Name() + "/one"}
	sandbox.DB(other, c)
	second := &recorder{TB: t, name: t.Name() + "/two"}
	require.Contains(t, fatally(t, func() { sandbox.DB(second, c) }), "one after the other")
	require.Empty(t, other.end())
	require.Empty(t, r.end())
}

func TestDeferredForeignKeysAreCheckedAtCommit(t *testing.T) {
	c := pooldriver.New("sqlite:"+t.TempDir()+"/test.db?_pragma=foreign_keys(1)", quietly)
	plain := sql.OpenDB(c)
	defer plain.Close()
	mustExec(t, plain, "CREATE TABLE ledger (id integer PRIMARY KEY, of integer REFERENCES ledger DEFERRABLE INITIALLY DEFERRED)")
	t.Run("test", func(t *testing.T) {
		db := sandbox.DB(t, c)
		tx, err := db.Begin()
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO ledger VALUES (1, 2)")
		require.ErrorContains(t, tx.Commit(), "FOREIGN KEY")
		_, err = db.Exec("INSERT INTO ledger VALUES (?, ?)", 1, 2)
		require.ErrorContains(t, err, "FOREIGN KEY", "the statement is a transaction of its own")
		require.Zero(t, count(t, db))
		tx, err = db.Begin()
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO ledger VALUES (1, 2)")
		mustExec(t, tx, "INSERT INTO ledger VALUES (2, NULL)")
		require.NoError(t, tx.Commit())
		require.Equal(t, 2, count(t, db))
	})
}

func TestWhatASandboxOfSQLiteCannotDoFailsTheTest(t *testing.T) {
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	_, err := db.Exec("VACUUM")
	require.ErrorContains(t, err, "only outside of a transaction")
	require.Len(t, r.end(), 1)
}

func TestAStatementWhoseContextEndsIsUndoneAlone(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	ctx, cancel := context.WithCancel(t.Context())
	cutBy(cancel, false)
	_, err := db.ExecContext(ctx, "INSERT INTO ledger "+pauses)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, count(t, db))
}

func TestWhatIsWrongWithTheConnectorIsSaidAtOnce(t *testing.T) {
	require.Contains(t, fatally(t, func() { sandbox.DB(record(t), nil) }), "no connector")
	require.Contains(t, fatally(t, func() { sandbox.DB(record(t), pooldriver.New("nothing")) }), "cannot be used")
}

func TestSetMaxOpenConnsBringsNoHangBack(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	db.SetMaxOpenConns(1)
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = db.Begin()
	require.ErrorContains(t, err, "would wait for ever")
	require.NoError(t, tx.Commit())
}

func TestATransactionThatAnotherGoroutineHasIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		db := sandbox.DB(r, onSQLite(t))
		tx, err := db.Begin()
		require.NoError(t, err)
		used, done := make(chan error), make(chan error, 1)
		go func() {
			_, err := tx.Exec("INSERT INTO ledger VALUES (1, 'a')")
			used <- err
			time.Sleep(50 * time.Millisecond)
			done <- tx.Commit()
		}()
		require.NoError(t, <-used)
		n := count(t, db)
		require.NoError(t, <-done)
		require.Equal(t, 1, n)
		require.Empty(t, r.end())
	})
}

func TestErrorsOfWaitersSpeakOfTheTestsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		db := sandbox.DB(r, onSQLite(t, func(c *pooldriver.Config) { c.MaxConns, c.DeadlockAfter = 10, 50*time.Millisecond }))
		tx, err := db.Begin()
		require.NoError(t, err)
		failed := make(chan error)
		for _, timeout := range []time.Duration{10 * time.Millisecond, time.Hour} {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				_, err := db.ExecContext(ctx, "DELETE FROM ledger")
				failed <- err
			}()
			err := <-failed
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "has waited for the one session of the test")
			require.ErrorContains(t, err, "pooldriver.WithTask", "what to do")
			require.NotContains(t, err.Error(), "pool_max_conns")
			require.Equal(t, 2, strings.Count(err.Error(), "(sandbox_test.go:"), "both lines: %v", err)
		}
		require.NoError(t, tx.Rollback())
		require.Empty(t, r.end())
	})
}

func TestTheAdviceIsForWhatTheGoroutineHas(t *testing.T) {
	db := sandbox.DB(t, onSQLite(t))
	first, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.Zero(t, count(t, first))
	second, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = second.ExecContext(t.Context(), "DELETE FROM ledger")
	require.ErrorContains(t, err, "use the first *sql.Conn for both")
	require.NotContains(t, err.Error(), "*sql.Tx")
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())

	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	apart, endApart := pooldriver.NewTask(ctx)
	defer endApart()
	_, err = db.BeginTx(apart, nil)
	require.ErrorContains(t, err, "their tasks share nothing")
	require.ErrorContains(t, err, "sandbox.Database")
	require.NoError(t, tx.Rollback())
}

func TestNotesHaveTheLine(t *testing.T) {
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	for range 2 {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
	}
	_, err := db.Exec("VACUUM")
	require.Error(t, err)
	require.Len(t, r.logs, 1, "once")
	require.Contains(t, r.logs[0], "(at sandbox_test.TestNotesHaveTheLine (sandbox_test.go:")
	require.Len(t, r.end(), 1)
	require.Contains(t, r.errors[0], "(at sandbox_test.TestNotesHaveTheLine (sandbox_test.go:")
}

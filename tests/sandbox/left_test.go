package sandbox_test

import (
	"context"
	"database/sql"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/sandbox"
)

// What a test leaves open with t.Context(), which ends before the cleanups of the test.

// leaving is something that is opened with a context. ended is whether the test ends it properly.
type leaving struct {
	what string // the words of the report
	open func(t *testing.T, r *recorder, db *sql.DB, ctx context.Context)
}

var leavings = map[string]leaving{
	"transaction": {"a transaction that is open", func(t *testing.T, _ *recorder, db *sql.DB, ctx context.Context) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
	}},
	"transaction for a cleanup": {"a transaction that is open", func(t *testing.T, r *recorder, db *sql.DB, ctx context.Context) {
		tx, err := db.BeginTx(pooldriver.Label(ctx, "work"), nil)
		require.NoError(t, err)
		r.Cleanup(func() { _ = tx.Rollback() })
	}},
	"rows": {"rows that are open (SELECT ", func(t *testing.T, _ *recorder, db *sql.DB, ctx context.Context) {
		_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1, 'a')")
		require.NoError(t, err)
		rows, err := db.QueryContext(ctx, "SELECT * FROM ledger")
		require.NoError(t, err)
		require.True(t, rows.Next())
	}},
	"rows for a cleanup": {"rows that are open (SELECT ", func(t *testing.T, r *recorder, db *sql.DB, ctx context.Context) {
		rows, err := db.QueryContext(ctx, "SELECT * FROM ledger")
		require.NoError(t, err)
		r.Cleanup(func() { _ = rows.Close() })
	}},
}

func TestWhatEndsWithTheTestsContextIsLeftOpen(t *testing.T) {
	for name, l := range leavings {
		for way, begin := range map[string]func(t *testing.T, r *recorder) (*sql.DB, context.Context){
			"DB": func(t *testing.T, r *recorder) (*sql.DB, context.Context) {
				return sandbox.DB(r, onSQLite(t)), r.Context()
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				r := record(t)
				db, ctx := begin(t, r)
				l.open(t, r, db, ctx)
				left := r.end()
				require.Len(t, left, 1)
				require.Contains(t, left[0], l.what)
				require.Contains(t, left[0], "(left_test.go:")
				require.Contains(t, left[0], "context.WithoutCancel")
				require.Empty(t, r.late)
			})
		}
	}
}

func TestWhatEndsWithTheTestsContextInABubble(t *testing.T) {
	for name, l := range leavings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connector := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})), quietly)
				plain := sql.OpenDB(connector)
				defer plain.Close()
				mustExec(t, plain, "CREATE TABLE ledger (id INT, note TEXT)")
				r := record(t)
				l.open(t, r, sandbox.DB(r, connector), r.Context())
				left := r.end()
				require.Len(t, left, 1)
				require.Contains(t, left[0], l.what)
			})
		})
	}
}

func TestWhatEndsBeforeTheTestsContextIsNotLeftOpen(t *testing.T) {
	t.Parallel()
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	ctx := r.Context()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
	require.NoError(t, tx.Commit())
	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
	require.NoError(t, tx.Rollback())
	rows, err := db.QueryContext(ctx, "SELECT * FROM ledger")
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
	stmt, err := db.PrepareContext(ctx, "SELECT count(*) FROM ledger")
	require.NoError(t, err)
	require.NoError(t, stmt.QueryRowContext(ctx).Scan(&n))
	require.NoError(t, stmt.Close())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
	require.NoError(t, conn.Close())

	forCleanup, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	require.NoError(t, err)
	r.Cleanup(func() {
		require.NoError(t, forCleanup.Rollback())
		_, err := db.Exec("DELETE FROM ledger")
		require.NoError(t, err)
	})
	require.Empty(t, r.end())
}

func TestAContextOfTheProgramsOwnEndsByRight(t *testing.T) {
	t.Parallel()
	for range 20 { // who ends the transaction, and when, is chance
		r := record(t)
		db := sandbox.DB(r, onSQLite(t))
		short, cancel := context.WithCancel(r.Context())
		_, err := db.BeginTx(short, nil)
		require.NoError(t, err)
		cancel()
		require.Empty(t, r.end())
	}
}

func TestAWorkerThatTheTestsContextStopsLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	begun := make(chan error)
	go func() {
		_, err := db.BeginTx(r.Context(), nil)
		begun <- err
	}()
	require.NoError(t, <-begun)
	require.Empty(t, r.end())
}

func TestAHandOverToAWorkerLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	tx, err := db.BeginTx(r.Context(), nil)
	require.NoError(t, err)
	used := make(chan error)
	go func() {
		_, err := tx.Exec("INSERT INTO ledger VALUES (1, 'a')")
		used <- err
	}()
	require.NoError(t, <-used)
	require.Empty(t, r.end())
}

func TestASubtestsLevelEndsWithItsOwnContext(t *testing.T) {
	t.Parallel()
	c := onSQLite(t)
	r := record(t)
	db := sandbox.DB(r, c)
	child := record(t)
	child.name += "/subtest"
	own := sandbox.DB(child, c)
	_, err := own.BeginTx(child.Context(), nil)
	require.NoError(t, err)
	require.Len(t, child.end(), 1)
	done := make(chan struct{})
	t.Run("with the handle of the test around it", func(t *testing.T) {
		defer close(done)
		_, err := db.BeginTx(r.Context(), nil)
		require.NoError(t, err)
	})
	<-done
	require.Len(t, r.end(), 1)
}

func TestATestThatHasFailedLogsWhatItsContextHasEnded(t *testing.T) {
	t.Parallel()
	r := record(t)
	done := make(chan error)
	db := sandbox.DB(r, onSQLite(t))
	go func() {
		defer close(done)
		_, err := db.BeginTx(r.Context(), nil)
		done <- err
		r.Error("FailNow")
		runtime.Goexit()
	}()
	require.NoError(t, <-done)
	require.NoError(t, <-done, "it has ended")
	require.Equal(t, []string{"FailNow"}, r.end())
}

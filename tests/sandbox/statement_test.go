package sandbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// whenItRuns is called by SQLite's function test_pause, in the midst of a statement. In production the
// statement is interrupted then, however late that comes; in a sandbox it runs to its end.
var whenItRuns atomic.Pointer[func()]

// cutBy has the next statement that calls test_pause end its context.
func cutBy(cancel func(), inProduction bool) {
	whenItRuns.Store(new(func() {
		if cancel(); inProduction {
			time.Sleep(10 * time.Millisecond)
		}
	}))
}

const pauses = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i+1 FROM n LIMIT 6000) SELECT i, test_pause() FROM n"

// The driver registers for the whole program, once.
func init() {
	sqlite.MustRegisterScalarFunction("test_pause", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		(*whenItRuns.Load())()
		return "paused", nil
	})
}

// cutShort executes a statement in a transaction, with a context that ends while it runs, and tells
// what happens to the transaction.
func cutShort(t *testing.T, db *sql.DB, text string, inProduction bool) (story []string) {
	t.Helper()
	tell := func(what string, err error) { story = append(story, fmt.Sprintf("%s: %v", what, err)) }
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'before')")
	ctx, cancel := context.WithCancel(context.Background())
	cutBy(cancel, inProduction)
	_, err = tx.ExecContext(ctx, text)
	require.ErrorIs(t, err, context.Canceled)
	_, err = tx.Exec("INSERT INTO ledger VALUES (2, 'after')")
	tell("after", err)
	tell("commit", tx.Commit())
	var left int
	tell("count", db.QueryRow("SELECT total(id) FROM ledger").Scan(&left))
	tell(fmt.Sprint("left ", left), nil)
	mustExec(t, db, "DELETE FROM ledger")
	return story
}

// TestAStatementThatIsCutShortCostsWhatItCostsInProduction: SQLite ends the transaction around a
// statement that writes, and executes what comes later outside of one.
func TestAStatementThatIsCutShortCostsWhatItCostsInProduction(t *testing.T) {
	plain, c := global(t)
	for name, text := range map[string]string{
		"it writes":     "INSERT INTO ledger " + pauses,
		"it only reads": pauses,
	} {
		inProduction := cutShort(t, plain, text, true)
		t.Run(name, func(t *testing.T) {
			require.Equal(t, inProduction, cutShort(t, sandbox.DB(t, c), text, false))
		})
	}
}

func TestAStatementThatIsCutShortCostsTheTransactionsOfATask(t *testing.T) {
	plain, c := global(t)
	run := func(t *testing.T, db *sql.DB, inProduction bool) {
		var inner error
		outer := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			if _, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1, 'a')"); err != nil {
				return err
			}
			inner = pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
				short, cancel := context.WithCancel(ctx)
				cutBy(cancel, inProduction)
				_, err := db.ExecContext(short, "UPDATE ledger SET note = (SELECT count(*) FROM ("+pauses+") WHERE i > test_pause())")
				return err
			})
			return nil
		})
		require.ErrorIs(t, inner, context.Canceled)
		require.ErrorContains(t, outer, "a transaction is gone")
		require.Zero(t, count(t, db))
	}
	run(t, plain, true)
	t.Run("test", func(t *testing.T) { run(t, sandbox.DB(t, c), false) })
}

// TestWhatAStatementHasWrittenStaysIfItsRowsAreCutShort: it was executed before its first row came.
func TestWhatAStatementHasWrittenStaysIfItsRowsAreCutShort(t *testing.T) {
	plain, c := global(t)
	run := func(t *testing.T, db *sql.DB) (left int) {
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := db.QueryContext(ctx, "INSERT INTO ledger VALUES (1, 'a'), (2, 'b') RETURNING id")
		require.NoError(t, err)
		require.True(t, rows.Next())
		cancel()
		require.Eventually(t, func() bool { return errors.Is(rows.Err(), context.Canceled) || !rows.Next() }, 30*time.Second, time.Millisecond)
		_ = rows.Close()
		left = count(t, db)
		mustExec(t, db, "DELETE FROM ledger")
		return left
	}
	require.Equal(t, 2, run(t, plain))
	t.Run("test", func(t *testing.T) { require.Equal(t, 2, run(t, sandbox.DB(t, c))) })
}

func TestWhatChangesTheSessionIsSaidWithItsLine(t *testing.T) {
	r := record(t)
	db := sandbox.DB(r, onSQLite(t))
	for _, mistake := range []string{"SELEC", "SELECT nothing FROM nowhere", "PRAGMA"} {
		_, err := db.Exec(mistake) // changes nothing
		require.Error(t, err)
	}
	_, err := db.Exec("CREATE TEMP TABLE scratch (secret text DEFAULT 'hidden')")
	require.NoError(t, err)
	require.Empty(t, r.end())
	require.Len(t, r.logs, 1, "%v", r.logs)
	require.Contains(t, r.logs[0], "CREATE TEMP TABLE scratch")
	require.Contains(t, r.logs[0], "statement_test.go:")
	require.NotContains(t, r.logs[0], "hidden")
}

// TestASubtestMayChangeTheSession: SQLite cannot undo that, and the log says so.
func TestASubtestMayChangeTheSession(t *testing.T) {
	c := onSQLite(t)
	r := record(t)
	sandbox.DB(r, c)
	subtest := &recorder{TB: t, name: t.Name() + "/level"}
	db := sandbox.DB(subtest, c)
	_, err := db.Exec("PRAGMA cache_size = 100")
	require.NoError(t, err)
	require.Empty(t, subtest.end())
	require.Len(t, subtest.logs, 1)
	require.Empty(t, r.end())
}

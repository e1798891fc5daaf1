package sandboxes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pool"
	"github.com/pooldriver/pooldriver/sandbox"
	"github.com/pooldriver/pooldriver/tests/answers"
)

// TestSandboxTransactionsByTextsAreAsInProduction: the texts end with an empty table.
func TestSandboxTransactionsByTextsAreAsInProduction(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO ledger VALUES (1, 'a')"
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			texts := []string{
				"COMMIT", "ROLLBACK", "BEGIN", "BEGIN", insert, "ROLLBACK", insert, "DELETE FROM ledger",
				"BEGIN", insert, "BEGIN", insert, "ROLLBACK", "SELECT 1/count(*) FROM ledger", "DELETE FROM ledger",
				"START TRANSACTION READ ONLY", insert, "ROLLBACK", "begin -- a comment", insert, "ROLLBACK /* another */;",
				"/* one */ BEGIN", insert, "commit work", "DELETE FROM ledger", "BEGIN IMMEDIATE", "BEGIN", "BEGIN IMMEDIATE", "COMMIT",
			}
			if engine == testbed.Postgres {
				texts = append(texts, "BEGIN", insert, insert, "BEGIN", "COMMIT", "BEGIN", "BEGIN READ ONLY", insert, "END",
					"START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE", insert, "ABORT", "BEGIN READ ONLY READ WRITE", "COMMIT")
			}
			bare := s.account.OpenBare(t)
			defer bare.Close()
			inProduction := answers.To(t, bare, texts)
			t.Run("test", func(t *testing.T) {
				require.Equal(t, inProduction, answers.To(t, sandbox.DB(t, s.connector), texts))
			})
		})
	}
}

// TestSandboxTransactionThatACancelHasEndedSaysSo: with pgx alone the error is "conn closed", and with
// the driver of MySQL that of the context.
func TestSandboxTransactionThatACancelHasEndedSaysSo(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			db := sandbox.DB(t, s.connector)
			for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
				tx, err := db.Begin()
				require.NoError(t, err)
				mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
				_, err = tx.ExecContext(s.untilItRuns(t), slowly(engine))
				require.ErrorIs(t, err, context.Canceled)
				_, err = tx.Exec("INSERT INTO ledger VALUES (2, 'a')")
				require.ErrorIs(t, err, driver.ErrBadConn, "as in production")
				err = end(tx)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "rolled back already")
				require.Zero(t, count(t, db, "SELECT count(*) FROM ledger"))
			}
		})
	}
}

// TestSandboxRowsThatATestLeavesCostNoConnection, and the test has the one error of their line.
func TestSandboxRowsThatATestLeavesCostNoConnection(t *testing.T) {
	t.Parallel()
	many := map[testbed.Engine]string{
		testbed.Postgres: "SELECT generate_series(1, 100000000), repeat('x', 1000)",
		testbed.MySQL:    "WITH RECURSIVE d AS (SELECT 1 n UNION ALL SELECT n + 1 FROM d WHERE n < 900) SELECT a.n, repeat('x', 1000) FROM d a, d b, d c",
	}
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			leave := func(query func(string, ...any) (*sql.Rows, error), text string) {
				rows, err := query(text)
				require.NoError(t, err)
				require.True(t, rows.Next())
				t.Cleanup(func() {
					for rows.Next() {
					}
					require.Error(t, rows.Err())
					_ = rows.Close()
				})
			}
			r, subtest := record(t), record(t)
			subtest.name += "/level"
			db := sandbox.DB(r, s.connector)
			mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
			leave(sandbox.DB(subtest, s.connector).Query, "SELECT 1 UNION SELECT 2")
			require.Len(t, subtest.end(), 1, "%v", subtest.errors)
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"), "the test around the subtest goes on")
			tx, err := db.Begin()
			require.NoError(t, err)
			leave(tx.Query, many[engine])
			defer tx.Rollback()
			require.Len(t, r.end(), 1, "%v", r.errors)
			stats := s.connector.Stats().Pool
			require.Equal(t, pool.Destroyed{}, stats.Destroyed)
		})
	}
}

func TestSandboxMySQLCancelAfterAChangeOfTheSession(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.MySQL).connector)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	mustExec(t, conn, "SET @own = 1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = conn.ExecContext(ctx, "SELECT sleep(60)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestSandboxMySQLSaysWhatChangesTheSession(t *testing.T) {
	t.Parallel()
	r := record(t)
	db := sandbox.DB(r, onServer(t, testbed.MySQL).connector)
	_, err := db.Exec("SELEC") // changes nothing
	require.Error(t, err)
	_, err = db.Exec("SET @own = 'hidden'")
	require.NoError(t, err)
	require.Empty(t, r.end())
	require.Contains(t, r.logged(), "SET @own …, at sandboxes.TestSandboxMySQLSaysWhatChangesTheSession (sandbox_production_test.go:")
	require.NotContains(t, r.logged(), "SELEC,")
}

package sandboxes

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

func TestSandboxMySQLUndoesWhatATestWrites(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	t.Run("first", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		mustExec(t, db, "INSERT INTO ledger VALUES (?, ?)", 1, "a")
		require.NoError(t, inTx(t, db, func(tx *sql.Tx) { mustExec(t, tx, "INSERT INTO ledger VALUES (2, 'b')") }))
		tx, err := db.Begin()
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO ledger VALUES (3, 'c')")
		require.NoError(t, tx.Rollback())
		_, err = db.Exec("INSERT INTO ledger VALUES (1, 'a')")
		require.Error(t, err)
		require.Equal(t, 2, count(t, db, "SELECT count(*) FROM ledger"))
		require.Zero(t, count(t, s.witness, "SELECT count(*) FROM ledger"))
	})
	t.Run("second", func(t *testing.T) {
		require.Zero(t, count(t, sandbox.DB(t, s.connector), "SELECT count(*) FROM ledger"))
	})
}

func TestSandboxMySQLKillsOneStatement(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	db := sandbox.DB(t, s.connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	for range 3 {
		begun := time.Now()
		_, err := db.ExecContext(s.untilItRuns(t), "UPDATE ledger SET note = 'b' WHERE sleep(600) = 0")
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, time.Since(begun), 5*time.Minute, "it did not end by itself")
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger WHERE note = 'a'"))
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (2, 'a')")
	_, err = tx.ExecContext(s.untilItRuns(t), "UPDATE ledger SET note = 'b' WHERE sleep(600) = 0")
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, tx.Commit())
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxMySQLRefusesWhatWouldCommit(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	r := record(t)
	db := sandbox.DB(r, s.connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	_, err := db.Exec("CREATE TABLE other (id integer)")
	require.ErrorContains(t, err, "sandbox.Database")
	mustExec(t, db, "CREATE TEMPORARY TABLE mine (id integer)")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
	failed := r.end()
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], "CREATE TABLE")
}

func TestSandboxMySQLReadOnly(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.MySQL).connector)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.Zero(t, count(t, tx, "SELECT count(*) FROM ledger"))
	_, err = tx.Exec("INSERT INTO ledger VALUES (?, 'a')", 2)
	require.ErrorContains(t, err, "1792")
	require.NoError(t, tx.Rollback())
}

// TestSandboxMySQLTestsRunOneAfterTheOther, also over two connectors, as of two programs.
func TestSandboxMySQLTestsRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	var inside sync.Mutex
	t.Run("all", func(t *testing.T) {
		for i := range 20 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				db := sandbox.DB(t, s.connector)
				require.True(t, inside.TryLock())
				defer inside.Unlock()
				mustExec(t, db, "INSERT INTO ledger VALUES (?, 'a')", i)
			})
		}
	})
}

// TestSandboxMySQLDeadlockNamesBothTests: InnoDB rolls back the whole transaction of one of them.
func TestSandboxMySQLDeadlockNamesBothTests(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	mustExec(t, s.witness, "CREATE TABLE two (id integer PRIMARY KEY, n integer)")
	mustExec(t, s.witness, "INSERT INTO two VALUES (1, 0), (2, 0)")
	sandbox.Together(s.connector)
	a, b := record(t), record(t)
	a.name, b.name = "TestA", "TestB"
	dbA, dbB := sandbox.DB(a, s.connector), sandbox.DB(b, s.connector)
	mustExec(t, dbA, "UPDATE two SET n = 1 WHERE id = 1")
	mustExec(t, dbB, "UPDATE two SET n = 1 WHERE id = 2")
	errs := make(chan error, 2)
	go func() { _, err := dbA.Exec("UPDATE two SET n = 1 WHERE id = 2"); errs <- err }()
	go func() { _, err := dbB.Exec("UPDATE two SET n = 1 WHERE id = 1"); errs <- err }()
	err := <-errs
	if err == nil {
		err = <-errs
	} else {
		require.NoError(t, <-errs)
	}
	require.ErrorContains(t, err, "1213")
	failed := append(a.end(), b.end()...)
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], "1213")
	require.Regexp(t, "TestA|TestB", failed[0])
	require.Contains(t, failed[0], "UPDATE two SET n = ?")
}

func TestSandboxMySQLSettingsOfContextsReachNobodyElse(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	seen := func(ctx context.Context, db *sql.DB) (value string) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COALESCE(@`app.tenant`, '')").Scan(&value))
		return value
	}
	t.Run("test", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		a := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "a"})
		b := pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": "b"})
		require.Equal(t, []string{"a", "b", "", "a"}, []string{seen(a, db), seen(b, db), seen(t.Context(), db), seen(a, db)})
		_, err := db.ExecContext(a, "SET @own = 1") // state, which is cleaned
		require.NoError(t, err)
		require.Empty(t, seen(t.Context(), db))
		require.Equal(t, "a", seen(a, db))
	})
	plain := sql.OpenDB(s.connector)
	defer plain.Close()
	require.Empty(t, seen(t.Context(), plain), "and nobody after the test")
}

func TestSandboxMySQLNamesTheTestThatHasTheLock(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.MySQL)
	mustExec(t, s.witness, "CREATE TABLE one (id integer PRIMARY KEY, n integer)")
	mustExec(t, s.witness, "INSERT INTO one VALUES (1, 0)")
	mustExec(t, s.witness, fmt.Sprintf("GRANT PROCESS ON *.* TO '%s'@'%%'", s.account.User))
	mustExec(t, s.witness, fmt.Sprintf("GRANT SELECT ON performance_schema.* TO '%s'@'%%'", s.account.User))
	sandbox.Together(s.connector)
	a, b := record(t), record(t)
	a.name, b.name = "TestA", "TestB"
	dbA, dbB := sandbox.DB(a, s.connector), sandbox.DB(b, s.connector)
	mustExec(t, dbA, "UPDATE one SET n = 1")
	done := make(chan error)
	go func() { _, err := dbB.Exec("UPDATE one SET n = 2"); done <- err }()
	require.Eventually(t, func() bool { return b.logged() != "" }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, b.logged(), "TestA")
	require.Empty(t, a.end())
	require.NoError(t, <-done)
	require.Empty(t, b.end())
}

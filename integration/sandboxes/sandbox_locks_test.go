package sandboxes

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

func TestSandboxPostgresNamesTheTestThatHasTheLock(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	a, b := record(t), record(t)
	a.name, b.name = "TestA", "TestB"
	dbA, dbB := sandbox.DB(a, s.connector), sandbox.DB(b, s.connector)
	mustExec(t, dbA, "INSERT INTO ledger VALUES (1, 'a')")
	done := make(chan error)
	go func() { _, err := dbB.Exec("INSERT INTO ledger VALUES (1, 'b')"); done <- err }()
	require.Eventually(t, func() bool { return b.logged() != "" }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, b.logged(), "TestA")
	require.Contains(t, b.logged(), "INSERT INTO ledger VALUES (?, ?)")
	require.Contains(t, b.logged(), "(main_test.go:", "the line")
	require.Empty(t, a.end())
	require.NoError(t, <-done, "the first test is undone")
	require.Empty(t, b.end())
}

func TestSandboxPostgresDeadlockNamesTheOtherTest(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE TABLE two (id integer PRIMARY KEY, n integer)")
	mustExec(t, s.witness, "INSERT INTO two VALUES (1, 0), (2, 0)")
	mustExec(t, s.witness, "GRANT ALL ON two TO PUBLIC")
	a, b := record(t), record(t)
	a.name, b.name = "TestA", "TestB"
	dbA, dbB := sandbox.DB(a, s.connector), sandbox.DB(b, s.connector)
	mustExec(t, dbA, "UPDATE two SET n = 1 WHERE id = 1")
	mustExec(t, dbB, "UPDATE two SET n = 1 WHERE id = 2")
	errA, errB := make(chan error), make(chan error)
	go func() { _, err := dbA.Exec("UPDATE two SET n = 1 WHERE id = 2"); errA <- err }()
	go func() { _, err := dbB.Exec("UPDATE two SET n = 1 WHERE id = 1"); errB <- err }()
	// The statement that is refused is undone alone: its test keeps its other lock until its end.
	select {
	case err := <-errA:
		require.ErrorContains(t, err, "40P01")
		require.ErrorContains(t, err, "TestB")
		require.Equal(t, 1, count(t, dbA, "SELECT count(*) FROM two WHERE n = 1"))
		require.Empty(t, a.end())
		require.NoError(t, <-errB)
		require.Empty(t, b.end())
	case err := <-errB:
		require.ErrorContains(t, err, "40P01")
		require.ErrorContains(t, err, "TestA")
		require.Empty(t, b.end())
		require.NoError(t, <-errA)
		require.Empty(t, a.end())
	}
}

func TestSandboxPostgresNamesWhatTheProgramHasBesideIt(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sql.OpenDB(s.connector)
	defer db.Close()
	r := record(t)
	test := sandbox.DB(r, s.connector)
	tx, err := db.Begin() // beside the sandbox
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
	done := make(chan error)
	go func() { _, err := test.Exec("INSERT INTO ledger VALUES (1, 'b')"); done <- err }()
	require.Eventually(t, func() bool { return r.logged() != "" }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, r.logged(), "which this program uses beside the sandboxes, and whose last statement was INSERT INTO ledger VALUES (?, ?)")
	require.Contains(t, r.logged(), "(sandbox_locks_test.go:")
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-done)
	require.Empty(t, r.end())
}

package sandboxes

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
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

func TestSandboxStopsWhatWaitsBesideItForItsOwnTest(t *testing.T) {
	for _, engine := range []testbed.Engine{testbed.Postgres, testbed.MySQL} {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			if engine == testbed.MySQL {
				mustExec(t, s.witness, fmt.Sprintf("GRANT PROCESS ON *.* TO '%s'@'%%'", s.account.User))
				mustExec(t, s.witness, fmt.Sprintf("GRANT SELECT ON performance_schema.* TO '%s'@'%%'", s.account.User))
			}
			db := sql.OpenDB(s.connector)
			defer db.Close()
			r := record(t)
			ctx := sandbox.Context(r, db)
			_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1, 'a')")
			require.NoError(t, err)
			_, err = db.Exec("INSERT INTO ledger VALUES (1, 'b')") // the context is forgotten
			require.ErrorContains(t, err, "it was stopped")
			require.ErrorContains(t, err, "a lock of "+t.Name())
			require.ErrorContains(t, err, "sandbox.Context")
			require.Equal(t, 1, strings.Count(err.Error(), "(sandbox_locks_test.go:"), "%v", err)
			require.NotErrorIs(t, err, context.Canceled, "the program has cancelled nothing")
			require.Contains(t, r.logged(), "INSERT INTO ledger VALUES (?, ?)")
			require.Contains(t, r.logged(), "(sandbox_locks_test.go:")

			short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, err = db.ExecContext(short, "INSERT INTO ledger VALUES (1, 'b')")
			require.ErrorIs(t, err, context.DeadlineExceeded, "it ends by itself")

			// Another goroutine may be that of another test, whose statement goes on when this test has ended.
			elsewhere := make(chan error)
			go func() { _, err := db.Exec("INSERT INTO ledger (id) VALUES (1)"); elsewhere <- err }()
			require.Eventually(t, func() bool { return strings.Contains(r.logged(), "INSERT INTO ledger (id)") }, 10*time.Second, 10*time.Millisecond)
			require.Empty(t, r.end())
			require.NoError(t, <-elsewhere)
			mustExec(t, s.witness, "DELETE FROM ledger")
		})
	}
}

func TestSandboxPostgresNamesWhatTheProgramHasBesideIt(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sql.OpenDB(s.connector)
	defer db.Close()
	r := record(t)
	ctx := sandbox.Context(r, db)
	tx, err := db.Begin() // the context is forgotten
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
	done := make(chan error)
	go func() { _, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1, 'b')"); done <- err }()
	require.Eventually(t, func() bool { return r.logged() != "" }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, r.logged(), "which this program uses beside the sandboxes, and whose last statement was INSERT INTO ledger VALUES (?, ?)")
	require.Contains(t, r.logged(), "(sandbox_locks_test.go:")
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-done)
	require.Empty(t, r.end())
}

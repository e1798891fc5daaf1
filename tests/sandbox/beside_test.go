package sandbox_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/stubdialect"
	"github.com/pooldriver/pooldriver/sandbox"
)

// Statements that go to the database itself while a sandbox is open.

// onFake returns a handle of a database in memory that locks nothing, with a table.
func onFake(t *testing.T) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})), quietly)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	mustExec(t, db, "CREATE TABLE ledger (id INT)")
	return db, c
}

func TestWhatGoesPastTheSandboxIsSaidAtTheEnd(t *testing.T) {
	db, _ := onFake(t)
	r := record(t)
	ctx := sandbox.Context(r, db)
	_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO ledger VALUES (?)", 2) // the context is forgotten
	require.NoError(t, err)
	stmt, err := db.Prepare("INSERT INTO ledger VALUES (?)")
	require.NoError(t, err)
	_, err = stmt.Exec(3)
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "DELETE FROM ledger WHERE id = 3")
	require.Empty(t, r.logs)
	require.NoError(t, tx.Commit())
	require.Empty(t, r.end())
	require.Len(t, r.logs, 1)
	require.Contains(t, r.logs[0], "what they have written stays: 3; the first: INSERT INTO ledger VALUES (?), at sandbox_test.TestWhatGoesPastTheSandboxIsSaidAtTheEnd (beside_test.go:")
}

func TestWhatChangesNothingPastTheSandboxIsNotSaid(t *testing.T) {
	db, c := onFake(t)
	r := record(t)
	sandbox.Context(r, db)
	mustExec(t, db, "UPDATE ledger SET id = 1 WHERE id = 7")
	mustExec(t, db, "CREATE TEMP TABLE mine (id INT)")
	_, err := db.Exec("INSERT INTO ledger VALUES (1) /*+ error 'no luck' */")
	require.Error(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO ledger VALUES (1)")
	require.NoError(t, tx.Rollback())
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for _, text := range []string{"BEGIN", "INSERT INTO ledger VALUES (1)", "ROLLBACK"} {
		mustExec(t, conn, text)
	}
	require.NoError(t, conn.Close())
	require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1)")
		require.NoError(t, err)
		return context.Canceled
	}), context.Canceled)
	elsewhere := make(chan error)
	go func() {
		_, err := db.Exec("INSERT INTO ledger VALUES (1)")
		elsewhere <- err
	}()
	require.NoError(t, <-elsewhere, "another goroutine may belong to another test")
	require.Empty(t, r.end())
	require.Empty(t, r.logs)

	r = record(t)
	sandbox.DB(r, c) // the test has a handle of its own, and so this one is meant
	mustExec(t, db, "INSERT INTO ledger VALUES (1)")
	require.Empty(t, r.end())
	require.Empty(t, r.logs)
}

func TestAStatementBesideASandboxThatFindsTheDatabaseLockedIsSaid(t *testing.T) {
	c := pooldriver.New("sqlite:"+t.TempDir()+"/test.db?_pragma=busy_timeout(10)", quietly)
	db := sql.OpenDB(c)
	defer db.Close()
	mustExec(t, db, "CREATE TABLE ledger (id integer PRIMARY KEY, note text)")
	r := record(t)
	sandbox.Context(r, db)
	for range 2 {
		_, err := db.Exec("INSERT INTO ledger VALUES (3, 'a')")
		require.ErrorContains(t, err, "locked")
	}
	require.Len(t, r.logs, 1, "once: %s", strings.Join(r.logs, "\n"))
	require.Contains(t, r.logs[0], "INSERT INTO ledger VALUES (?, ?)")
	require.Contains(t, r.logs[0], "(beside_test.go:")
	require.Contains(t, r.logs[0], "sandbox.Context")
	require.Empty(t, r.end())
}

package sandboxes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

func TestSandboxPostgresUndoesWhatATestWrites(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	t.Run("first", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO ledger VALUES ($1, $2)", 2, "b")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		tx, err = db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO ledger VALUES ($1, $2)", 3, "c")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		require.Equal(t, 2, count(t, db, "SELECT count(*) FROM ledger"))
		require.Zero(t, count(t, s.witness, "SELECT count(*) FROM ledger"))
	})
	t.Run("second", func(t *testing.T) {
		require.Zero(t, count(t, sandbox.DB(t, s.connector), "SELECT count(*) FROM ledger"))
	})
}

func TestSandboxPostgresKeepsTheTestAfterAnError(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	for _, bad := range []func() error{
		func() error { _, err := db.Exec("INSERT INTO ledger VALUES (1, 'a')"); return err },
		func() error { _, err := db.Exec("INSERT INTO ledger VALUES ($1, $2)", 1, "a"); return err },
		func() error { _, err := db.Exec("SELEC"); return err },
		func() error { _, err := db.Exec("SELEC $1", 1); return err },
		func() error { _, err := db.Prepare("SELECT nothing FROM nowhere"); return err },
		func() error { return db.QueryRow("SELECT 1/(id-1) FROM ledger").Scan(new(int)) },
		func() error {
			rows, err := db.Query("SELECT 1/(3-n) FROM generate_series(1,$1::int) n", 5)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		},
	} {
		require.Error(t, bad())
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO ledger VALUES (1, 'a')")
	require.Error(t, err)
	_, err = tx.Exec("INSERT INTO ledger VALUES (2, 'a')")
	require.ErrorContains(t, err, "25P02", "as in production")
	require.Error(t, tx.Commit())
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxPostgresCancelsOneStatement(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sandbox.DB(t, s.connector)
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	begun := time.Now()
	_, err := db.ExecContext(s.untilItRuns(t), slowly(testbed.Postgres))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), 5*time.Minute, "it did not end by itself")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))

	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO ledger VALUES (2, 'a')")
	require.NoError(t, err)
	_, err = tx.ExecContext(s.untilItRuns(t), slowly(testbed.Postgres))
	require.ErrorIs(t, err, context.Canceled)
	_, err = tx.Exec("INSERT INTO ledger VALUES (3, 'a')")
	require.Error(t, err, "in production the connection is closed, and the transaction gone")
	require.Error(t, tx.Commit())
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))

	ctx, cancel := context.WithCancel(t.Context())
	rows, err := db.QueryContext(ctx, "SELECT generate_series(1, 100000000), repeat('x', 1000)")
	require.NoError(t, err)
	require.True(t, rows.Next())
	cancel()
	_ = rows.Close() // an error, or none, as with the driver alone
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

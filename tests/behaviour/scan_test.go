package behaviour

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Scan and what happens between Next and Scan. Since Go 1.27 the fake driver scans its columns
// itself; buffer_test.go reads the same rows in every way.

// asking is a Scanner that runs a statement.
type asking func() error

func (a asking) Scan(any) error { return a() }

func TestAScannerMayUseTheTransactionOfItsRows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, db, c := openTasks(t, 1)
	require.NoError(t, inTransaction(ctx, db, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 3")
		require.NoError(t, err)
		asked := 0
		for rows.Next() {
			require.NoError(t, rows.Scan(asking(func() error {
				asked++
				_, err := db.ExecContext(ctx, "SELECT 1")
				return err
			})))
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 3, asked)
		return rows.Close()
	}))
	require.Zero(t, c.Stats().BufferedBytes)
}

func TestRawBytesOutliveAStatementThatReadsTheirRowsAhead(t *testing.T) {
	_, db, _ := openTasks(t, 1)
	mustExec(t, t.Context(), db, "CREATE TABLE b (v BLOB); INSERT INTO b VALUES (x'616263'), (x'616263'), (x'616263')")
	require.NoError(t, inTransaction(t.Context(), db, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "SELECT v FROM b")
		require.NoError(t, err)
		for rows.Next() {
			var raw sql.RawBytes
			require.NoError(t, rows.Scan(&raw))
			mustExec(t, ctx, db, "SELECT 1")
			require.Equal(t, "abc", string(raw))
		}
		require.NoError(t, rows.Err())
		return rows.Close()
	}))
}

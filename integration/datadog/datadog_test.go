// Package datadog runs pooldriver beneath DataDog's tracing of database/sql. It is a module
// of its own: the tracer's dependencies do not agree with those of the other tests.
package datadog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	sqltrace "github.com/DataDog/dd-trace-go/contrib/database/sql/v2"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

// open returns a traced *sql.DB over a file of SQLite, with its table.
func open(t *testing.T) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "x.db")+"?pool_max_conns=1", func(c *pooldriver.Config) {
		c.Logger = slog.New(slog.DiscardHandler)
	})
	db := sqltrace.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.NoError(t, c.Close()) // sqltrace's connector does not close ours
	})
	_, err := db.Exec("CREATE TABLE ledger (id integer)")
	require.NoError(t, err)
	return db, c
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT count(*) FROM ledger").Scan(&n))
	return n
}

func TestRawFindsTheDriversConnectionBeneathTheTracer(t *testing.T) {
	db, _ := open(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
		_, ok := dc.(interface{ Serialize() ([]byte, error) })
		require.True(t, ok, "%T is not the driver's", dc)
		return nil
	}))
}

func TestInTxAndTasksWorkBeneathTheTracer(t *testing.T) {
	db, _ := open(t)
	insert := func(ctx context.Context) {
		_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (1)")
		require.NoError(t, err)
	}
	no := errors.New("no")
	require.Equal(t, no, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		insert(ctx)
		return no
	}))
	require.Zero(t, count(t, db))

	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	insert(ctx)
	require.NoError(t, tx.Rollback())
	insert(ctx)
	end()
	require.Equal(t, 1, count(t, db))
}

// TestNothingLeaksBeneathTheTracer, which hides driver.Validator.
func TestNothingLeaksBeneathTheTracer(t *testing.T) {
	db, c := open(t)
	_, err := db.Exec("CREATE TEMPORARY TABLE mine (id integer)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO mine VALUES (1)")
	require.ErrorContains(t, err, "no such table")
	require.Zero(t, c.Stats().Pool.Lent)
}

func TestNestedQueriesCompleteBeneathTheTracer(t *testing.T) {
	db, _ := open(t)
	_, err := db.Exec("INSERT INTO ledger VALUES (1), (2), (3)")
	require.NoError(t, err)
	rows, err := db.Query("SELECT id FROM ledger")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		require.Equal(t, 3, count(t, db))
	}
	require.NoError(t, rows.Err())
}

// Package migrating runs the code of docs/migrating.md and docs/recipes.md on real servers.
package migrating

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// quiet keeps what the pool logs out of a passing run's output.
func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// open opens a database through pooldriver until the end of the test.
func open(t *testing.T, dsn string, options ...pooldriver.Option) *sql.DB {
	t.Helper()
	db, err := pooldriver.Open(dsn, append([]pooldriver.Option{quiet}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// connOf takes a *sql.Conn until the end of the test.
func connOf(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

type executor interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func mustExec(t *testing.T, db executor, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

// value runs a query that returns one value.
func value[T any](t *testing.T, ctx context.Context, db executor, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, query, args...).Scan(&v), query)
	return v
}

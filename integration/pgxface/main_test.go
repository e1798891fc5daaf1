// Package pgxface runs module pgxpooldriver on real servers.
package pgxface

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// both are the two faces of one pool.
type both struct {
	testbed.Account
	connector *pooldriver.Connector
	pool      *pgxpooldriver.Pool
	db        *sql.DB
}

// open makes both over an account of its own.
func open(t *testing.T, parameters ...string) both {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	return over(t, account, pooldriver.New(account.URL(parameters...), quiet))
}

// over makes both over a Connector to the account.
func over(t *testing.T, account testbed.Account, connector *pooldriver.Connector) both {
	t.Helper()
	require.NoError(t, connector.Err())
	b := both{account, connector, pgxpooldriver.New(connector), sql.OpenDB(connector)}
	t.Cleanup(func() { require.NoError(t, b.db.Close()) })
	return b
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ask runs a query that returns one value.
func ask[T any](ctx context.Context, t *testing.T, q queryer, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, q.QueryRow(ctx, query, args...).Scan(&v), query)
	return v
}

// askDB is ask by database/sql.
func askDB[T any](ctx context.Context, t *testing.T, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, query, args...).Scan(&v), query)
	return v
}

func (b both) atRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.connector.Stats().Pool.Active == 0 }, waits, tick, "%v", b.connector.Holders())
}

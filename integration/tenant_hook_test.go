package integration

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// tenantKey is the key of the tenant in a context.
type tenantKey struct{}

func asTenant(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, tenantKey{}, name)
}

// tenantDB is a pool over pgx whose own hooks set the tenant by the context, as pgx documents
// it, with how often they were called.
func tenantDB(t *testing.T, account testbed.Account, max int, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector, *atomic.Int64) {
	t.Helper()
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	var calls atomic.Int64
	set := func(ctx context.Context, conn *pgx.Conn) error {
		calls.Add(1)
		name, _ := ctx.Value(tenantKey{}).(string)
		_, err := conn.Exec(ctx, "SELECT set_config('app.tenant', $1, false)", name)
		return err
	}
	connector := pooldriver.Wrap(stdlib.GetConnector(*config, stdlib.OptionAfterConnect(set), stdlib.OptionResetSession(set)),
		append(options, quiet, func(c *pooldriver.Config) { c.MaxConns = max })...)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db, connector, &calls
}

const whichTenant = "SELECT current_setting('app.tenant', true)"

// runsAs asks the server as which tenant a statement runs.
func runsAs(ctx context.Context, q rowQuerier) (name string, err error) {
	err = q.QueryRowContext(ctx, whichTenant).Scan(&name)
	return name, err
}

func requireTenant(t *testing.T, ctx context.Context, q rowQuerier, want string) {
	t.Helper()
	got, err := runsAs(ctx, q)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestPostgresStatementsRunAsTheTenantOfTheirContext where the wrapped driver sets the tenant
// in its hooks, whoever has begun the dial of a connection.
func TestPostgresStatementsRunAsTheTenantOfTheirContext(t *testing.T) {
	t.Parallel()
	db, connector, _ := tenantDB(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), 3)
	over := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				connector.Flush() // so that there are dials all the time
			}
		}
	})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			name := fmt.Sprint("tenant ", i)
			for range 40 {
				ctx, cancel := context.WithTimeout(asTenant(t.Context(), name), time.Minute)
				if got, err := runsAs(ctx, db); err != nil || got != name {
					t.Errorf("a statement of %q runs as %q, %v", name, got, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	close(over)
	churn.Wait()
}

// TestPostgresTenantsOfAHookShareNoPipeline: in a pipeline all would be the leader's.
func TestPostgresTenantsOfAHookShareNoPipeline(t *testing.T) {
	t.Parallel()
	db, connector, _ := tenantDB(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), 2,
		func(c *pooldriver.Config) { c.Pipeline = 16 })
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			name := fmt.Sprint("tenant ", i)
			for range 50 {
				if got, err := runsAs(asTenant(t.Context(), name), db); err != nil || got != name {
					t.Errorf("a statement of %q runs as %q, %v", name, got, err)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, connector.Stats().Pipelined)
}

// TestPostgresAConnHasTheTenantOfItsContext: a *sql.Conn and a *sql.Tx are their context's, as
// over the bare driver, whatever context their statements have.
func TestPostgresAConnHasTheTenantOfItsContext(t *testing.T) {
	t.Parallel()
	db, _, _ := tenantDB(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), 3)
	for range 2 { // on a new connection, and on one that was used
		conn, err := db.Conn(asTenant(t.Context(), "a"))
		require.NoError(t, err)
		requireTenant(t, t.Context(), conn, "a")
		requireTenant(t, asTenant(t.Context(), "b"), conn, "a")
		require.NoError(t, conn.Close())
		requireTenant(t, t.Context(), db, "")

		tx, err := db.BeginTx(asTenant(t.Context(), "c"), nil)
		require.NoError(t, err)
		requireTenant(t, asTenant(t.Context(), "d"), tx, "c")
		require.NoError(t, tx.Rollback())
	}
}

// TestPostgresStatementsOfATaskHaveTheirTenants, which share a connection, except in a
// transaction, which has its own.
func TestPostgresStatementsOfATaskHaveTheirTenants(t *testing.T) {
	t.Parallel()
	db, _, calls := tenantDB(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), 1)
	task, end := pooldriver.WithTask(t.Context())
	defer end()
	a, b := asTenant(task, "a"), asTenant(task, "b")
	_, err := db.ExecContext(a, "SET search_path = public") // its session stays
	require.NoError(t, err)
	requireTenant(t, a, db, "a")
	requireTenant(t, b, db, "b")
	requireTenant(t, a, db, "a")
	before := calls.Load()
	requireTenant(t, a, db, "a")
	require.Equal(t, before, calls.Load(), "it was the last one's, too")

	rows, err := db.QueryContext(a, "SELECT generate_series(1, 3)")
	require.NoError(t, err)
	require.True(t, rows.Next())
	requireTenant(t, b, db, "b") // while the rows are open
	require.NoError(t, rows.Close())

	conn, err := db.Conn(a)
	require.NoError(t, err)
	requireTenant(t, a, conn, "a")
	requireTenant(t, b, db, "b")
	requireTenant(t, b, conn, "a")
	require.NoError(t, conn.Close())

	tx, err := db.BeginTx(a, nil)
	require.NoError(t, err)
	requireTenant(t, b, tx, "a")
	requireTenant(t, b, db, "a") // it joins
	require.NoError(t, tx.Commit())
	requireTenant(t, b, db, "b")
}

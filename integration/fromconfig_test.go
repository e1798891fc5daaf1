package integration

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	mysqldialect "github.com/pooldriver/pooldriver/dialects/mysql"
	postgresdialect "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestFromConfigCleansInPlaceAndCancels as New does, and Wrap of the driver's connector does not.
func TestFromConfigCleansInPlaceAndCancels(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		c := pooldriver.Wrap(configured(t, account), quiet, func(c *pooldriver.Config) { c.MaxConns = 1 })
		db := sql.OpenDB(c)
		defer db.Close()
		session, change, look, sleep := "SELECT pg_backend_pid()", "SET work_mem = '77MB'", "SELECT current_setting('work_mem') = '77MB'", "SELECT pg_sleep(30)"
		if account.Server.Engine != testbed.Postgres {
			session, change, look, sleep = "SELECT connection_id()", "SET @x = 7", "SELECT @x IS NOT NULL", "SELECT sleep(30)"
		}
		before := fromRow[int64](t, t.Context(), db, session)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), change)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.False(t, fromRow[bool](t, t.Context(), db, look))
		require.Equal(t, before, fromRow[int64](t, t.Context(), db, session), "the session stays")

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = db.ExecContext(ctx, sleep)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, db.PingContext(t.Context()))
		running := "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'"
		if account.Server.Engine != testbed.Postgres {
			running = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT sleep(30)%' AND user = '" + account.User + "'"
		} else {
			running += " AND datname = current_database()"
		}
		witness := account.Witness(t)
		require.Eventually(t, func() bool { return fromRow[int](t, t.Context(), witness, running) == 0 }, 10*time.Second, 10*time.Millisecond)
	})
}

func TestPostgresFromConfigKeepsWhatTheProgramHasSet(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	config := pgxConfig(t, account)
	var dials, connects atomic.Int64
	traced := &countingTracer{}
	config.Tracer = traced
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		connects.Add(1)
		return c.Exec(ctx, "SET app.mine = 'yes'").Close()
	}
	connector := postgresdialect.FromConfig(config)
	config.Tracer = nil // FromConfig has a copy
	db := sql.OpenDB(pooldriver.Wrap(connector, quiet, func(c *pooldriver.Config) { c.MaxConns = 1 }))
	defer db.Close()
	mine := func() string { return fromRow[string](t, t.Context(), db, "SELECT current_setting('app.mine', true)") }
	require.Equal(t, "yes", mine())
	_, err := db.ExecContext(t.Context(), "SET app.mine = 'no'")
	require.NoError(t, err)
	require.Equal(t, "yes", mine(), "of a new connection")
	require.EqualValues(t, 2, connects.Load())
	require.GreaterOrEqual(t, dials.Load(), int64(2))
	require.Positive(t, traced.Load())
}

// TestPostgresFromConfigAsksForTheRole of each server.
func TestPostgresFromConfigAsksForTheRole(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	config, err := pgx.ParseConfig(account.URL("target_session_attrs=standby"))
	require.NoError(t, err)
	c := pooldriver.Wrap(postgresdialect.FromConfig(config), quiet)
	require.ErrorContains(t, c.Ready(t.Context()), "standby")
	require.NoError(t, c.Close())

	own := pgxConfig(t, account)
	own.ValidateConnect = func(context.Context, *pgconn.PgConn) error { return context.Canceled }
	c = pooldriver.Wrap(postgresdialect.FromConfig(own), quiet)
	require.ErrorContains(t, c.Ready(t.Context()), "canceled", "the program's own check")
	require.NoError(t, c.Close())
}

func TestMySQLFromConfigKeepsWhatTheProgramHasSet(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	config := mysqlConfig(t, account)
	password := config.Passwd
	var dials, logins atomic.Int64
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	config.Passwd = "another"
	require.NoError(t, config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		logins.Add(1)
		c.Passwd = password
		return nil
	})))
	db := sql.OpenDB(pooldriver.Wrap(mysqldialect.FromConfig(config), quiet, func(c *pooldriver.Config) { c.MaxConns = 1 }))
	defer db.Close()
	witness := account.Witness(t)
	sleeping := func(n int) func() bool {
		return func() bool {
			return fromRow[int](t, t.Context(), witness, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT sleep(30)%' AND user = '"+account.User+"'") == n
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "SELECT sleep(30)")
		done <- err
	}()
	require.Eventually(t, sleeping(1), 10*time.Second, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, sleeping(0), 10*time.Second, 10*time.Millisecond, "the connection that kills logs in, too")
	require.Equal(t, dials.Load(), logins.Load())
	require.GreaterOrEqual(t, logins.Load(), int64(2))
}

type countingTracer struct{ atomic.Int64 }

func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

func (*countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func fromRow[T any](t *testing.T, ctx context.Context, db *sql.DB, text string) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, text).Scan(&v), text)
	return v
}

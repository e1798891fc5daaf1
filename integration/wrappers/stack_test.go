package wrappers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ngrok/sqlmw"
	"github.com/qustavo/sqlhooks/v2"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	sqlitedriver "modernc.org/sqlite"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// place is a database that the tests use: a server's, or a file of SQLite's.
type place struct {
	name   string
	dsn    string        // for pooldriver
	driver driver.Driver // the database's own
	bare   string        // the DSN of driver
}

// mark returns the n-th placeholder.
func (p place) mark(n int) string {
	if p.name == "postgres" {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// eachPlace runs the test once per server and on SQLite.
func eachPlace(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		p := place{name: account.Server.Engine.String(), dsn: account.URL()}
		if p.name == "postgres" {
			p.driver, p.bare = stdlib.GetDefaultDriver(), account.URL()
		} else {
			config := mysql.NewConfig()
			config.User, config.Passwd, config.Net, config.Addr, config.DBName = account.User, account.Password, "tcp", account.Addr, account.Database
			p.driver, p.bare = &mysql.MySQLDriver{}, config.FormatDSN()
		}
		test(t, p)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		test(t, place{"sqlite", "sqlite:" + file + "?_pragma=busy_timeout(5000)", &sqlitedriver.Driver{}, file})
	})
}

// library is one that wraps drivers or connectors, and how often it has seen a statement.
type library struct {
	name string
	// over wraps all the connections of a connector.
	over func(t *testing.T, c driver.Connector) (wrapped driver.Connector, seen func() int)
	// hides says that it has no driver.Validator.
	hides bool
	// shows says that it shows the connections and connectors that it wraps.
	shows bool
}

var libraries = []library{
	{name: "otelsql", over: overOtelsql, shows: true},
	{name: "sqlmw", over: overSqlmw},
	{name: "sqlhooks", over: overSqlhooks, hides: true, shows: true},
}

// source is a driver for libraries that wrap drivers. Its connections are the connector's,
// whatever name is given.
type source struct{ driver.Connector }

func (s source) Open(string) (driver.Conn, error) { return s.Connect(context.Background()) }

func (s source) OpenConnector(string) (driver.Connector, error) { return s.Connector, nil }

// overOtelsql: otelsql wraps connectors, and shows the wrapped connector to nobody, but
// through a driver.
func overOtelsql(t *testing.T, c driver.Connector) (driver.Connector, func() int) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	wrapped, err := otelsql.WrapDriver(source{c}, otelsql.WithTracerProvider(provider)).(driver.DriverContext).OpenConnector("")
	require.NoError(t, err)
	return wrapped, func() int {
		n := 0
		for _, span := range spans.GetSpans() {
			if span.Name == "sql.conn.exec" || span.Name == "sql.stmt.exec" {
				n++
			}
		}
		return n
	}
}

type counting struct {
	sqlmw.NullInterceptor
	seen *atomic.Int64
}

func (c counting) ConnExecContext(ctx context.Context, conn driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	c.seen.Add(1)
	return conn.ExecContext(ctx, query, args)
}

func overSqlmw(t *testing.T, c driver.Connector) (driver.Connector, func() int) {
	var seen atomic.Int64
	wrapped, err := sqlmw.Driver(source{c}, counting{seen: &seen}).(driver.DriverContext).OpenConnector("")
	require.NoError(t, err)
	return wrapped, func() int { return int(seen.Load()) }
}

type hooks struct{ seen *atomic.Int64 }

func (h hooks) Before(ctx context.Context, _ string, _ ...any) (context.Context, error) {
	h.seen.Add(1)
	return ctx, nil
}

func (h hooks) After(ctx context.Context, _ string, _ ...any) (context.Context, error) {
	return ctx, nil
}

// overSqlhooks: sqlhooks knows drivers without connectors only.
func overSqlhooks(_ *testing.T, c driver.Connector) (driver.Connector, func() int) {
	var seen atomic.Int64
	return opener{sqlhooks.Wrap(source{c}, hooks{&seen})}, func() int { return int(seen.Load()) }
}

// opener makes connections by a driver that has no connectors, as sql.Open does.
type opener struct{ driver driver.Driver }

func (o opener) Connect(context.Context) (driver.Conn, error) { return o.driver.Open("") }

func (o opener) Driver() driver.Driver { return o.driver }

// quiet keeps what the pool logs out of a passing run's output.
func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

func limit(n int) pooldriver.Option { return func(c *pooldriver.Config) { c.MaxConns = n } }

// openDB opens a connector until the end of the test, and closes all of it then: not every
// library closes the connector that it wraps.
func openDB(t *testing.T, c driver.Connector, ours *pooldriver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.NoError(t, ours.Close())
	})
	return db
}

func mustExec(t *testing.T, ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(ctx, statement, args...)
	require.NoError(t, err, statement)
}

// number runs a query that returns one number.
func number(t *testing.T, ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, query).Scan(&n), query)
	return n
}

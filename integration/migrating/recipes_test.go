package migrating

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// page: leader
// lead does work while this process is the leader. It returns nil if another process is.
func lead(ctx context.Context, db *sql.DB, work func(context.Context) error) error {
	ctx = pooldriver.Label(ctx, "leader")
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // also unlocks
	var leader bool
	err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(42)").Scan(&leader)
	if err != nil || !leader {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for ctx.Err() == nil {
			if err := conn.PingContext(ctx); err != nil { // the session has ended, and its lock with it
				stop(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return work(ctx)
}

// end

func TestALeaderLearnsThatItsSessionHasEnded(t *testing.T) {
	db, account := postgres(t)
	witness := account.Witness(t)
	began := make(chan struct{})
	other := func(context.Context) error { return errors.New("two leaders") }
	err := lead(t.Context(), db, func(ctx context.Context) error {
		close(began)
		require.NoError(t, lead(t.Context(), db, other), "another process is the leader")
		mustExec(t, witness, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND granted")
		<-ctx.Done()
		return context.Cause(ctx)
	})
	<-began
	require.Error(t, err)
	require.NotErrorIs(t, err, context.Canceled)
	t.Log(err)
	require.EqualError(t, lead(t.Context(), db, other), "two leaders", "the lock is free")
}

// page: listener
// listen calls handle for each notification, and whenever some may have been missed.
func listen(ctx context.Context, db *sql.DB, handle func(payload string)) error {
	ctx = pooldriver.Label(ctx, "listener")
	for {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		err = pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			pg := dc.(*stdlib.Conn).Conn()
			if _, err := pg.Exec(ctx, "LISTEN orders"); err != nil {
				return err
			}
			handle("") // what was sent before LISTEN was not heard: look at the table
			for {
				n, err := pg.WaitForNotification(ctx)
				if err != nil {
					return err
				}
				handle(n.Payload)
			}
		})
		conn.Close()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			slog.Warn("listening again", "err", err)
		}
	}
}

// end

func TestAListenerListensAgain(t *testing.T) {
	db, account := postgres(t)
	witness := account.Witness(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard, done := make(chan string, 10), make(chan error, 1)
	go func() { done <- listen(ctx, db, func(payload string) { heard <- payload }) }()
	for _, payload := range []string{"one", "two"} {
		require.Empty(t, <-heard, "it looks at the table first")
		mustExec(t, witness, "SELECT pg_notify('orders', $1)", payload)
		require.Equal(t, payload, <-heard)
		mustExec(t, witness, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", account.User)
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// counter is a tracer of pgx.
type counter struct{ queries atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestATracerOfPgx(t *testing.T) {
	t.Parallel()
	dsn, tracer := testbed.Shared(t, testbed.Postgres).NewAccount(t).URL(), &counter{}
	open := func() (*sql.DB, error) {
		// page: tracer
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		config.Tracer = tracer
		c := pooldriver.Wrap(stdlib.GetConnector(*config), func(c *pooldriver.Config) { c.MaxConns = 20 })
		return sql.OpenDB(c), nil
		// end
	}
	db, err := open()
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, 1, value[int](t, t.Context(), db, "SELECT 1"))
	require.Positive(t, tracer.queries.Load())
}

// TestPgxReadsTheEnvironment is not parallel: it sets the environment.
func TestPgxReadsTheEnvironment(t *testing.T) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	u, err := url.Parse(account.URL())
	require.NoError(t, err)
	for name, value := range map[string]string{
		"PGHOST": u.Hostname(), "PGPORT": u.Port(), "PGUSER": account.User, "PGPASSWORD": account.Password,
		"PGDATABASE": account.Database, "PGSSLMODE": "disable", "PGAPPNAME": "shop",
	} {
		t.Setenv(name, value)
	}
	// page: environment
	db, err := pooldriver.Open("postgres://?pool_max_conns=20") // PGHOST, PGUSER, …
	// end
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, account.Database, value[string](t, t.Context(), db, "SELECT current_database()"))
	require.Equal(t, "shop", value[string](t, t.Context(), db, "SHOW application_name"))
}

// cross takes hours. MySQL's sleep ends with a timeout, and without an error.
const cross = "SELECT count(*) FROM information_schema.collations a, information_schema.collations b, information_schema.collations c, information_schema.collations d"

// serverTimeouts are what the page says of each server: the parameter of the DSN, a statement that
// takes too long, and what the server's error is.
var serverTimeouts = []struct {
	server    string
	engine    testbed.Engine
	parameter string
	slow      string
	is        func(error) bool
	code      string
}{
	{"PostgreSQL", testbed.Postgres, "statement_timeout=1000", "SELECT pg_sleep(20)", func(err error) bool {
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "57014"
	}, "57014"},
	{"MariaDB", testbed.MariaDB, "max_statement_time=1", cross, mysqlError(1969), "1969"},
	{"MySQL", testbed.OracleMySQL, "max_execution_time=1000", cross, mysqlError(3024), "3024"},
}

func mysqlError(number uint16) func(error) bool {
	return func(err error) bool {
		var said *mysql.MySQLError
		return errors.As(err, &said) && said.Number == number
	}
}

// TestATimeoutOfTheServerKeepsTheConnection: and what is left of a transaction, on the servers of this run.
func TestATimeoutOfTheServerKeepsTheConnection(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		for _, s := range serverTimeouts {
			if s.engine != engine {
				continue
			}
			t.Run(s.server, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				name, _, _ := strings.Cut(s.parameter, "=")
				require.True(t, strings.Contains(pages(t), "`"+name+"="), name)
				require.True(t, strings.Contains(pages(t), s.code), s.code)
				account := testbed.Shared(t, engine).NewAccount(t)
				db := open(t, account.URL("pool_max_conns=1", s.parameter))
				mustExec(t, db, "CREATE TABLE orders (id integer)")
				number := "SELECT connection_id()"
				if engine == testbed.Postgres {
					number = "SELECT pg_backend_pid()"
				}
				before := value[int](t, ctx, db, number)
				_, err := db.ExecContext(ctx, s.slow)
				require.True(t, s.is(err), "%v", err)
				require.Equal(t, before, value[int](t, ctx, db, number), "the connection stays")

				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (1)")
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, s.slow)
				require.True(t, s.is(err), "%v", err)
				_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)")
				want := 0
				if engine == testbed.Postgres {
					require.ErrorContains(t, err, "25P02", "the transaction has failed")
					require.Error(t, tx.Commit())
				} else {
					require.NoError(t, err, "the transaction goes on")
					require.NoError(t, tx.Commit())
					want = 2
				}
				require.Equal(t, want, value[int](t, ctx, db, "SELECT count(*) FROM orders"))
			})
		}
	}
}

// TestAContextEndsItsStatementOnTheServer: at once for the caller. The connection's place is free when
// the server has ended the statement.
func TestAContextEndsItsStatementOnTheServer(t *testing.T) {
	t.Parallel()
	dsns := map[string][2]string{"SQLite": {
		"sqlite:" + filepath.Join(t.TempDir(), "shop.db") + "?pool_max_conns=1",
		"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
	}}
	for _, engine := range testbed.Engines() {
		for _, s := range serverTimeouts {
			if s.engine == engine {
				dsns[s.server] = [2]string{testbed.Shared(t, engine).NewAccount(t).URL("pool_max_conns=1"), s.slow}
			}
		}
	}
	for name, d := range dsns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db := t.Context(), open(t, d[0])
			mustExec(t, db, "CREATE TABLE orders (id integer)")
			add := func() error {
				// page: timeout
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				_, err := db.ExecContext(ctx, "INSERT INTO orders VALUES (1)")
				return err
				// end
			}
			require.NoError(t, add())
			stop := func(on executor) {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				_, err := on.ExecContext(ctx, d[1])
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			stop(db)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)")
			require.NoError(t, err)
			stop(tx)
			if name == "SQLite" {
				require.NoError(t, tx.Commit(), "the transaction goes on")
				require.Equal(t, 2, value[int](t, ctx, db, "SELECT count(*) FROM orders"))
				return
			}
			err = tx.Commit()
			require.Error(t, err)
			t.Log(name, err)
			require.Equal(t, 1, value[int](t, ctx, db, "SELECT count(*) FROM orders"), "the transaction is rolled back")
		})
	}
}

package migrating

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
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
	db, account := onPostgres(t)
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
	require.Eventually(t, func() bool { // the session's last word comes before it gives its lock away
		return !value[bool](t, t.Context(), witness, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 42)")
	}, time.Minute, time.Millisecond)
	require.EqualError(t, lead(t.Context(), db, other), "two leaders", "the lock is free")
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
		c := pooldriver.Wrap(postgres.FromConfig(config), func(c *pooldriver.Config) { c.MaxConns = 20 })
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

func TestATimeoutByContext(t *testing.T) {
	db, _ := onPostgres(t)
	ctx := t.Context()
	mustExec(t, db, "ALTER TABLE orders ADD ready bool; INSERT INTO orders (id) VALUES (1)")
	change := func() error {
		// page: timeout
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, "UPDATE orders SET ready = true WHERE id = 1")
		return err
		// end
	}
	require.Eventually(t, func() bool { return change() == nil }, time.Minute, time.Millisecond) // a server may be busy for two seconds
	require.True(t, value[bool](t, ctx, db, "SELECT ready FROM orders"))
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "UPDATE orders SET ready = false")
	require.NoError(t, err)
	require.ErrorIs(t, change(), context.DeadlineExceeded, "it waits for the row")
	require.NoError(t, tx.Commit())
}

// TestANameOfAConfigIsForPgxAlone: the same configuration works through Wrap.
func TestANameOfAConfigIsForPgxAlone(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testbed.Shared(t, testbed.Postgres).NewAccount(t).URL())
	require.NoError(t, err)
	name := stdlib.RegisterConnConfig(config)
	require.Error(t, pooldriver.New(name).Err(), name)
	db := sql.OpenDB(pooldriver.Wrap(postgres.FromConfig(config)))
	defer db.Close()
	require.Equal(t, 1, value[int](t, t.Context(), db, "SELECT 1"))
}

// schema is the script of a program.
const schema = `CREATE TABLE IF NOT EXISTS parts (id integer PRIMARY KEY);
CREATE TABLE IF NOT EXISTS stock (part integer REFERENCES parts, n integer);`

// page: migrate
// migrate makes the tables. go test runs the packages side by side: the lock lets one do it at a time.
func migrate(ctx context.Context, dsn string) error {
	db, err := pooldriver.Open(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(4711)"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, schema) // a text without arguments may have several statements
		return err
	})
}

// end

// TestTablesAreMadeBeforeASandbox by several processes at once.
func TestTablesAreMadeBeforeASandbox(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { require.NoError(t, migrate(t.Context(), account.URL())) })
	}
	all.Wait()
	c := pooldriver.New(account.URL(), quiet)
	defer c.Close()
	db := sandbox.DB(t, c)
	mustExec(t, db, "INSERT INTO parts VALUES (1)")
	mustExec(t, db, "INSERT INTO stock VALUES (1, 2)")
}

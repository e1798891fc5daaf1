package migrating

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/postgres"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// onPostgres opens an account of its own, with a table orders.
func onPostgres(t *testing.T, options ...pooldriver.Option) (*sql.DB, testbed.Account) {
	t.Helper()
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := open(t, account.URL(), options...)
	mustExec(t, db, "CREATE TABLE orders (id integer, name text)")
	return db, account
}

// TestATypeAssertionInConnRawPanicsAsThePageSays: so that a search finds the page.
func TestATypeAssertionInConnRawPanicsAsThePageSays(t *testing.T) {
	db, _ := onPostgres(t)
	page := pages(t)
	for assert, before := range map[string]func(any){
		"any":         func(dc any) { _ = dc.(*stdlib.Conn) },
		"driver.Conn": func(dc any) { _ = dc.(driver.Conn).(*stdlib.Conn) },
	} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		panicked := func() (p any) {
			defer func() { p = recover() }()
			_ = conn.Raw(func(dc any) error { before(dc); return nil })
			return nil
		}()
		require.Implements(t, (*error)(nil), panicked, assert)
		require.Contains(t, page, panicked.(error).Error())
		require.ErrorIs(t, conn.Close(), sql.ErrConnDone, "database/sql has closed it")
	}
}

func TestCopy(t *testing.T) {
	db, _ := onPostgres(t)
	ctx := t.Context()
	rows := [][]any{{1, "one"}, {2, "two"}}
	conn := connOf(t, db)
	// page: copy
	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
		pg := dc.(*stdlib.Conn).Conn()
		_, err := pg.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "name"}, pgx.CopyFromRows(rows))
		return err
	})
	// end
	require.NoError(t, err)
	require.Equal(t, 2, value[int](t, ctx, db, "SELECT count(*) FROM orders"))
}

func TestBatch(t *testing.T) {
	db, _ := onPostgres(t)
	ctx := t.Context()
	conn := connOf(t, db)
	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders VALUES ($1, $2)", 1, "one")
		batch.Queue("INSERT INTO orders VALUES ($1, $2)", 2, "two")
		return dc.(*stdlib.Conn).Conn().SendBatch(ctx, batch).Close()
	})
	require.NoError(t, err)
	require.Equal(t, 2, value[int](t, ctx, db, "SELECT count(*) FROM orders"))
}

func TestListen(t *testing.T) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	connector := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var heard string
	readAll := func(context.Context) { mustExec(t, db, "SELECT pg_notify('orders', 'new')") }
	handle := func(_ context.Context, payload string) { heard = payload; cancel() }
	// page: listen
	err := connector.Listen(ctx, "orders", func(ctx context.Context, n pooldriver.Notification) {
		if n.Gap { // the first one, and whenever notifications may be missing
			readAll(ctx)
			return
		}
		handle(ctx, n.Payload)
	})
	// end
	require.NoError(t, err)
	require.Equal(t, "new", heard)
}

func TestCustomTypes(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	setup := open(t, account.URL())
	mustExec(t, setup, "CREATE TYPE mood AS ENUM ('ok', 'bad')")
	dsn := account.URL()
	// page: types
	c := pooldriver.New(dsn, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, dc driver.Conn) error {
			pg := dc.(*stdlib.Conn).Conn()
			mood, err := pg.LoadType(ctx, "mood")
			if err == nil {
				pg.TypeMap().RegisterType(mood)
			}
			return err
		}
	})
	db := sql.OpenDB(c)
	// end
	defer db.Close()
	conn := connOf(t, db)
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
		_, known := dc.(*stdlib.Conn).Conn().TypeMap().TypeForName("mood")
		require.True(t, known)
		return nil
	}))
	require.Equal(t, "ok", value[string](t, t.Context(), db, "SELECT 'ok'::mood"))
}

func TestAdvisoryLock(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	locked := func() bool {
		return value[bool](t, ctx, account.Witness(t), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 42)")
	}
	work := func(*sql.Conn) error {
		require.True(t, locked())
		return nil
	}
	become := func() error {
		// page: lock
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // also unlocks
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(42)"); err != nil {
			return err
		}
		return work(conn)
		// end
	}
	require.NoError(t, become())
	require.Eventually(t, func() bool { return !locked() }, 10*time.Second, 10*time.Millisecond)
}

func TestSetForEveryConnection(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	dsn, _, _ := strings.Cut(account.URL(), "?")
	// page: setdsn
	c := pooldriver.New(dsn + "?timezone=UTC&application_name=shop") // or & after other parameters
	// end
	db := sql.OpenDB(c)
	defer db.Close()
	require.Equal(t, "UTC", value[string](t, t.Context(), db, "SHOW timezone"))
	require.Equal(t, "shop", value[string](t, t.Context(), db, "SHOW application_name"))
}

func TestSetForSomeStatements(t *testing.T) {
	db, _ := onPostgres(t)
	ctx := t.Context()
	mustExec(t, db, "CREATE SCHEMA tenant_7 CREATE TABLE bills (id integer)")
	count := func(ctx context.Context, db *sql.DB) error {
		require.Zero(t, value[int](t, ctx, db, "SELECT count(*) FROM bills"))
		return nil
	}
	use := func() error {
		// page: settask
		ctx, end := pooldriver.WithTask(ctx)
		defer end()
		if _, err := db.ExecContext(ctx, "SET search_path = tenant_7"); err != nil {
			return err
		}
		return count(ctx, db)
		// end
	}
	require.NoError(t, use())
	_, err := db.ExecContext(ctx, "SELECT count(*) FROM bills")
	require.Error(t, err, "others do not have the setting")
}

func TestTemporaryTable(t *testing.T) {
	db, _ := onPostgres(t)
	ctx := t.Context()
	mustExec(t, db, "INSERT INTO orders VALUES (1, 'one')")
	// page: temp
	err := pooldriver.Do(ctx, func(ctx context.Context) error {
		if _, err := db.ExecContext(ctx, "CREATE TEMPORARY TABLE picked AS SELECT id FROM orders"); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "DELETE FROM orders WHERE id IN (SELECT id FROM picked)")
		return err
	})
	// end
	require.NoError(t, err)
	require.Zero(t, value[int](t, ctx, db, "SELECT count(*) FROM orders"))
	_, err = db.ExecContext(ctx, "SELECT * FROM picked")
	require.Error(t, err)
}

func TestSqlx(t *testing.T) {
	t.Parallel()
	dsn := testbed.Shared(t, testbed.Postgres).NewAccount(t).URL()
	// page: sqlx
	db := sqlx.NewDb(sql.OpenDB(pooldriver.New(dsn)), "pgx")
	// end
	defer db.Close()
	var n int
	require.NoError(t, db.Get(&n, db.Rebind("SELECT 1 + ?::int"), 2))
	require.Equal(t, 3, n)
}

func TestLimitAndStats(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	dsn, _, _ := strings.Cut(account.URL(), "?")
	// page: limit
	c := pooldriver.New(dsn + "?pool_max_conns=20&pool_max_conn_lifetime=30m&pool_max_conn_idle_time=5m")
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(1000) // virtual connections, which cost an object each
	// end
	defer db.Close()
	require.NoError(t, db.Ping())
	// page: stats
	s := c.Stats().Pool
	line := fmt.Sprintf("open %d of %d, in use %d, waited %d times", s.Count, s.Max, s.Active, s.Waits)
	// end
	require.Contains(t, line, "open 1 of 20")
}

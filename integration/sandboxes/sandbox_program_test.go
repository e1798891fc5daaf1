package sandboxes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

// What programs do, and see as in production.

func TestSandboxSaysWhatASavepointCannotDo(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	r := record(t)
	db := sandbox.DB(r, s.connector)
	mustExec(t, db, "SELECT pg_advisory_xact_lock(1)")
	mustExec(t, db, "NOTIFY news, 'x'")
	mustExec(t, db, "SELECT now()")
	mustExec(t, db, "SELECT now()")
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	for _, said := range []string{"advisory lock", "NOTIFY is never sent", "now() and current_timestamp stand still", "isolation level"} {
		require.Contains(t, r.logged(), said)
	}
	require.Len(t, r.logs, 4, "once each")
	_, err = db.Exec("VACUUM ledger")
	require.ErrorContains(t, err, "sandbox.Database")
	require.Len(t, r.end(), 1)
}

func TestSandboxRetriesTransactions(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	tries := 0
	err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		tries++
		if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES ($1, 'a')", tries); err != nil {
			return err
		}
		if tries < 3 {
			_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")
			return err
		}
		return nil
	}, pooldriver.Retry{})
	require.NoError(t, err)
	require.Equal(t, 3, tries)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxAfterAPanicInAHandler(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tx, err := db.BeginTx(r.Context(), nil)
		if err == nil {
			_, err = tx.Exec("INSERT INTO ledger VALUES (1, 'a')")
		}
		if err == nil {
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return t.Context() }
	server.Start()
	defer server.Close()
	_, err := server.Client().Get(server.URL)
	require.Error(t, err)
	require.Zero(t, count(t, db, "SELECT count(*) FROM ledger"), "the end of the request's context has rolled back")
}

func TestSandboxOfATestThatStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	r := record(t)
	done := make(chan struct{})
	var tx *sql.Tx
	go func() {
		defer close(done)
		var err error
		if tx, err = sandbox.DB(r, s.connector).Begin(); err == nil {
			_, _ = tx.Exec("INSERT INTO ledger VALUES (1, 'a')")
		}
		r.Error("FailNow")
		runtime.Goexit()
	}()
	<-done
	require.Equal(t, []string{"FailNow"}, r.end(), "what it has left open is only logged")
	require.Contains(t, r.logged(), "a transaction that is open")
	_ = tx.Rollback()
}

func TestSandboxOfALostConnection(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	r := record(t)
	db := sandbox.DB(r, s.connector)
	pid := count(t, db, "SELECT pg_backend_pid()")
	mustExec(t, s.witness, "SELECT pg_terminate_backend($1)", pid)
	_, err := db.Exec("INSERT INTO ledger VALUES (1, 'a')")
	require.ErrorContains(t, err, "the connection of the test is lost")
	_, err = db.Exec("INSERT INTO ledger VALUES (1, 'a')")
	require.ErrorContains(t, err, "the connection of the test is lost")
	require.NotEmpty(t, r.end())
	require.Zero(t, s.connector.Stats().Pool.Lent)
}

func TestSandboxCleansSessionState(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	db := sandbox.DB(t, s.connector)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, conn, "SET app.tenant = '7'")
	mustExec(t, conn, "CREATE TEMP TABLE mine (id integer)")
	mustExec(t, conn, "SELECT pg_advisory_lock(42)")
	require.Equal(t, 7, count(t, conn, "SELECT current_setting('app.tenant')::int"))
	require.NoError(t, conn.Close())
	require.Zero(t, count(t, db, "SELECT coalesce(nullif(current_setting('app.tenant', true), ''), '0')::int"))
	require.Zero(t, count(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42"))
	_, err = db.Exec("SELECT * FROM mine")
	require.ErrorContains(t, err, "42P01")
	mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxLendsTheDriversConnection(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	copyRows := func(ids ...int) error {
		return pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
			_, err := dc.(*stdlib.Conn).Conn().CopyFrom(t.Context(), pgx.Identifier{"ledger"}, []string{"id", "note"},
				pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i], "copied"}, nil }))
			return err
		})
	}
	require.NoError(t, copyRows(1, 2))
	require.Error(t, copyRows(3, 1))
	require.Equal(t, 2, count(t, conn, "SELECT count(*) FROM ledger"))
}

func TestSandboxBeginsAtOnceWithLazyBegin(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres, "pool_lazy_begin=true")
	db := sandbox.DB(t, s.connector)
	require.NoError(t, inTx(t, db, func(tx *sql.Tx) { mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')") }))
	require.NoError(t, inTx(t, db, func(*sql.Tx) {}))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxRunsAfterConnect(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	hooked := pooldriver.New(s.account.URL(), quietly, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, conn driver.Conn) error {
			_, err := conn.(*stdlib.Conn).ExecContext(ctx, "SET app.hook = '1'", nil)
			return err
		}
	})
	defer hooked.Close()
	t.Run("test", func(t *testing.T) {
		db := sandbox.DB(t, hooked)
		require.Equal(t, 1, count(t, db, "SELECT current_setting('app.hook')::int"))
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, conn, "SET app.hook = '2'")
		require.NoError(t, conn.Close())
		require.Equal(t, 1, count(t, db, "SELECT current_setting('app.hook')::int"), "after the cleaning it has run again")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err = db.ExecContext(ctx, "SELECT pg_sleep(60)")
		require.Error(t, err)
		require.Equal(t, 1, count(t, db, "SELECT current_setting('app.hook')::int"))
	})
}

// TestSandboxPreparedStatementsAndTables: a statement that is prepared and a table that changes.
func TestSandboxPreparedStatementsAndTables(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE SCHEMA own; GRANT ALL ON SCHEMA own TO PUBLIC")
	for range 2 { // the second test meets the connection of the first
		t.Run("test", func(t *testing.T) {
			db := sandbox.DB(t, s.connector)
			mustExec(t, db, "CREATE TABLE own.items (id integer)")
			stmt, err := db.Prepare("SELECT * FROM own.items WHERE id = $1")
			require.NoError(t, err)
			defer stmt.Close()
			for i := range 3 {
				var a, b int
				if i < 2 {
					require.ErrorIs(t, stmt.QueryRow(i).Scan(&a), sql.ErrNoRows)
					continue
				}
				mustExec(t, db, "ALTER TABLE own.items ADD COLUMN n integer DEFAULT 5")
				mustExec(t, db, "INSERT INTO own.items VALUES ($1)", i)
				require.NoError(t, stmt.QueryRow(i).Scan(&a, &b))
				require.Equal(t, 5, b)
			}
		})
	}
}

// TestSandboxNestedQueriesOfFunctionsThatNobodyKnows: whatever the rows are of, they can be read
// into memory, because there is only one session.
func TestSandboxNestedQueriesOfFunctionsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE SEQUENCE numbers; GRANT ALL ON SEQUENCE numbers TO PUBLIC")
	db := sandbox.DB(t, s.connector)
	rows, err := db.Query("SELECT nextval('numbers') FROM generate_series(1, 3)")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var n int
		require.NoError(t, rows.Scan(&n))
		mustExec(t, db, "INSERT INTO ledger VALUES ($1, 'a')", n)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM ledger"))
}

func TestSandboxInABubble(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			outside := sandbox.DB(t, s.connector)
			mustExec(t, outside, "INSERT INTO ledger VALUES (1, 'a')")
			require.Equal(t, 1, count(t, outside, "SELECT count(*) FROM ledger"))
			if engine == testbed.MySQL {
				return // one sandbox at a time
			}
			synctest.Test(t, func(t *testing.T) {
				connector := pooldriver.New(s.account.URL(), quietly)
				bubbled(t, connector)
				require.NoError(t, connector.Close())
			})
			synctest.Test(t, func(t *testing.T) {
				bubbled(t, s.connector) // which was made outside
			})
		})
	}
}

// bubbled is a test whose program waits for a day.
func bubbled(t *testing.T, connector *pooldriver.Connector) {
	t.Helper()
	r := record(t)
	r.name = "TestBubbled" // no level in the sandbox outside
	db := sandbox.DB(r, connector)
	begun := time.Now()
	require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
		mustExec(t, tx, "INSERT INTO ledger VALUES (2, 'a')")
		time.Sleep(24 * time.Hour)
	}))
	require.GreaterOrEqual(t, time.Since(begun), 24*time.Hour)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
	require.Empty(t, r.end())
}

// TestSandboxEndsWhatStillRuns: a goroutine that the test has forgotten.
func TestSandboxEndsWhatStillRuns(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			r := record(t)
			db := sandbox.DB(r, s.connector)
			mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
			done := make(chan error)
			go func() { _, err := db.ExecContext(context.Background(), slowly(engine)); done <- err }()
			<-s.untilItRuns(t).Done()
			begun := time.Now()
			left := r.end()
			require.Less(t, time.Since(begun), 5*time.Minute, "it did not end by itself")
			require.Len(t, left, 1)
			require.Contains(t, left[0], "that runs")
			require.Contains(t, left[0], "(sandbox_program_test.go:")
			require.Error(t, <-done)
			require.Eventually(t, func() bool { return s.connector.Stats().Pool.Lent == 0 }, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// TestSandboxesOfParallelTests: each test has its own session.
func TestSandboxesOfParallelTests(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	t.Run("all", func(t *testing.T) {
		for i := range 40 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				db, ctx := sandbox.DB(t, s.connector), t.Context()
				stmt, err := db.Prepare("SELECT count(*) FROM ledger")
				require.NoError(t, err)
				_, err = db.ExecContext(ctx, "INSERT INTO ledger VALUES ($1, 'a')", i)
				require.NoError(t, err)
				require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES ($1, 'a')", 1000+i)
					return err
				}))
				var n int
				require.NoError(t, stmt.QueryRowContext(ctx).Scan(&n))
				require.Equal(t, 2, n)
				require.NoError(t, stmt.Close())
			})
		}
	})
}

// TestSandboxSaysThatAFunctionOfRawIsUndone: the function stands in one savepoint, which one error
// fails. Over the bare driver each statement would be a transaction.
func TestSandboxSaysThatAFunctionOfRawIsUndone(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	insert := func(db *sql.DB, expected ...string) error {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		return pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
			pg := dc.(*stdlib.Conn).Conn()
			_, err := pg.Exec(t.Context(), "INSERT INTO ledger VALUES (1, 'a')")
			for _, text := range expected {
				_, failed := pg.Exec(t.Context(), text)
				require.Error(t, failed, "it is expected, and not returned")
			}
			return err
		})
	}
	for _, failing := range []string{"INSERT INTO ledger VALUES (1, 'twice')", "SELECT * FROM nowhere", "SELECT 1 / 0"} {
		t.Run(failing, func(t *testing.T) {
			db := sandbox.DB(t, s.connector)
			err := insert(db, failing)
			require.ErrorContains(t, err, "all that it has done is undone")
			require.Zero(t, count(t, db, "SELECT count(*) FROM ledger"))
			require.NoError(t, insert(db), "the test goes on")
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
		})
	}
	t.Run("an error of the function", func(t *testing.T) {
		db := sandbox.DB(t, s.connector)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		mine := errors.New("of the function")
		require.Equal(t, mine, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
			_, err := dc.(*stdlib.Conn).Conn().Exec(t.Context(), "SELECT 1 / 0")
			require.Error(t, err)
			return mine
		}))
		require.Zero(t, count(t, conn, "SELECT count(*) FROM ledger"))
	})
}

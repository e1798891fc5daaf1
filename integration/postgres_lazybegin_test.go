package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func lazyBegin(t testing.TB, s dialects.Session, opts driver.TxOptions) driver.Tx {
	t.Helper()
	tx, err := s.(dialects.LazyBeginner).BeginWithNext(t.Context(), opts)
	require.NoError(t, err)
	return tx
}

func plainBegin(t testing.TB, s dialects.Session, opts driver.TxOptions) driver.Tx {
	t.Helper()
	tx, err := s.Conn().(driver.ConnBeginTx).BeginTx(t.Context(), opts)
	require.NoError(t, err)
	return tx
}

func lazyBed(t testing.TB, parameters ...string) (dialects.Session, *sql.DB) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL(parameters...))
	s := pgDial(t, tmpl)
	pgExec(t, s, "CREATE TABLE t (a int PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE)")
	pgExec(t, s, "CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
	return s, account.Witness(t)
}

func pgNative(s dialects.Session) *pgx.Conn { return s.Conn().(*stdlib.Conn).Conn() }

func pgRows(t testing.TB, witness *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, witness.QueryRow("SELECT count(*) FROM t").Scan(&n))
	return n
}

func pgActivity(t testing.TB, witness *sql.DB, s dialects.Session) (state string) {
	t.Helper()
	require.NoError(t, witness.QueryRow("SELECT state FROM pg_stat_activity WHERE pid = $1", pgPID(s)).Scan(&state))
	return state
}

func TestPostgresLazyTransactionWithoutAStatementNeverReachesTheServer(t *testing.T) {
	t.Parallel()
	s, witness := lazyBed(t)
	before, _ := s.Sent()
	for _, end := range []func(driver.Tx) error{
		driver.Tx.Commit, driver.Tx.Rollback,
		func(driver.Tx) error { return s.Rollback(t.Context()) },
	} {
		tx := lazyBegin(t, s, driver.TxOptions{})
		require.Equal(t, dialects.TxOpen, s.TxStatus())
		require.Equal(t, "idle", pgActivity(t, witness, s))
		_, err := s.(dialects.LazyBeginner).BeginWithNext(t.Context(), driver.TxOptions{})
		require.ErrorIs(t, err, errors.ErrUnsupported, "there is one")
		require.NoError(t, end(tx))
		require.Equal(t, dialects.TxNone, s.TxStatus())
	}
	after, _ := s.Sent()
	require.Equal(t, before, after)

	pgExec(t, s, "INSERT INTO t VALUES (1)")
	require.Equal(t, 1, pgRows(t, witness), "in no transaction")

	lazyBegin(t, s, driver.TxOptions{})
	require.NoError(t, s.Ping(t.Context()))
	require.Equal(t, "idle", pgActivity(t, witness, s), "a ping begins nothing")
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	pgExec(t, s, "INSERT INTO t VALUES (2)")
	require.Equal(t, "idle in transaction", pgActivity(t, witness, s))
	require.Equal(t, 1, pgRows(t, witness))
}

// statement is a text with its arguments.
type statement struct {
	text string
	args []any
}

// pgStatements are of all kinds that a session may be given.
func pgStatements() (statements []statement) {
	for _, text := range []string{ // not COPY FROM: pgx itself hangs at it
		"INSERT INTO t VALUES (1)", "/* lead */ INSERT INTO t VALUES (1) -- end", "SELECT 1/0", "INSERT INTO t VALUES (1); SELECT 1/0",
		"INSERT INTO t VALUES (0)", "INSERT INTO nowhere VALUES (1)", "INSERT INTO t VALUES (1), (", "oops", "'open", "/* open",
		"INSERT INTO t VALUES (1); oops", "", " ", ";", "; ;", "-- ping", "-- comment", "/* a */ ; -- b",
		"INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2)",
		"INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2)", "COMMIT; SELECT 1/0", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
		"COMMIT", "commit;", " Rollback ", "ROLLBACK", "END", "ABORT", "BEGIN", "begin isolation level serializable",
		"START TRANSACTION", "PREPARE TRANSACTION 'x'",
		"VACUUM", "VACUUM t", "CREATE DATABASE other", "CREATE INDEX CONCURRENTLY i ON t (a)", "ALTER SYSTEM SET work_mem = '8MB'",
		"SAVEPOINT s", "RELEASE s", "LOCK TABLE t", "DECLARE c CURSOR FOR SELECT 1", "SET LOCAL work_mem = '8MB'",
		"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET TRANSACTION READ ONLY", "SET CONSTRAINTS ALL DEFERRED; INSERT INTO t VALUES (0)",
		"CALL commits()", "DO $$BEGIN COMMIT; END$$", "DO $$BEGIN RAISE NOTICE 'heard'; RAISE WARNING 'heard'; END$$",
		"COPY t TO STDOUT", "SET work_mem = '1234kB'",
		"PREPARE p AS SELECT 1", "DEALLOCATE ALL", "DISCARD ALL", "NOTIFY n", "LISTEN n", "CREATE TABLE u ()", "SELECT generate_series(1, 20000)",
		"SELECT pg_cancel_backend(pg_backend_pid())", "SET lock_timeout = 'nonsense'", "EXECUTE missing", "-- one\x00two",
	} {
		statements = append(statements, statement{text: text})
	}
	for _, text := range []string{
		"INSERT INTO t VALUES ($1)", "SELECT 1 / ($1 - 1)", "INSERT INTO nowhere VALUES ($1)", "oops $1", "INSERT INTO t VALUES ($1); SELECT 1",
		"INSERT INTO t SELECT generate_series($1, 5000) RETURNING repeat('x', 100)",
	} {
		statements = append(statements, statement{text, []any{int64(1)}})
	}
	statements = append(statements,
		statement{"INSERT INTO t VALUES ($1)", []any{int64(0)}},
		statement{"INSERT INTO t VALUES ($1)", []any{"text"}},
		statement{"INSERT INTO t VALUES ($1)", []any{int64(1), int64(2)}},
		statement{"INSERT INTO t SELECT length($1)", []any{strings.Repeat("x", 100_000)}},
		statement{"INSERT INTO t SELECT length('" + strings.Repeat("x", 3_000_000) + "')", nil})
	return statements
}

// describe is an error as far as two runs may be compared.
func describe(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return fmt.Sprintf("%s %s %s %d", server.Severity, server.Code, server.Message, server.Position)
	}
	return fmt.Sprint(err)
}

// What the first statement of a transaction does, its error, and what becomes
// of the transaction, is compared with a transaction that has begun before it.
func TestPostgresLazyTransactionGoesAsOneThatHasBegunWhateverItsFirstStatementIs(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s, witness := lazyBed(t, "default_query_exec_mode="+mode)
			course := func(st statement, begin func(testing.TB, dialects.Session, driver.TxOptions) driver.Tx, commit bool) (story []string) {
				_, err := witness.Exec("DELETE FROM t; INSERT INTO t VALUES (0); DROP TABLE IF EXISTS u")
				require.NoError(t, err)
				note := func(what string, err error) {
					story = append(story, fmt.Sprintf("%s: %s, %v", what, describe(err), s.TxStatus()))
				}
				tx := begin(t, s, driver.TxOptions{})
				note("first", pgTry(t.Context(), s, st.text, st.args...))
				require.NotEqual(t, "active", pgActivity(t, witness, s))
				note("second", pgTry(t.Context(), s, "INSERT INTO t VALUES (77)"))
				note("third", pgTry(t.Context(), s, "INSERT INTO t VALUES ($1)", int64(78)))
				if commit {
					note("commit", tx.Commit())
				} else {
					note("rollback", tx.Rollback())
				}
				if s.TxStatus() != dialects.TxNone {
					require.NoError(t, s.Rollback(t.Context()))
				}
				note("after", pgTry(t.Context(), s, "SELECT 1"))
				story = append(story, fmt.Sprint("rows ", pgRows(t, witness)))
				_, err = s.Clean(t.Context(), dialects.Suspect)
				require.NoError(t, err)
				return story
			}
			for _, st := range pgStatements() {
				for _, commit := range []bool{true, false} {
					what := fmt.Sprintf("%.60q %.20v commit=%v", st.text, st.args, commit)
					require.Equal(t, course(st, plainBegin, commit), course(st, lazyBegin, commit), what)
				}
			}
		})
	}
}

func TestPostgresLazyTransactionHasItsOptions(t *testing.T) {
	t.Parallel()
	s, _ := lazyBed(t)
	db := sql.OpenDB(pooldriver.New(testbed.Shared(t, testbed.Postgres).NewAccount(t).URL("pool_lazy_begin=true")))
	defer func() { require.NoError(t, db.Close()) }()
	for _, opts := range []driver.TxOptions{
		{}, {ReadOnly: true},
		{Isolation: driver.IsolationLevel(sql.LevelReadUncommitted)}, {Isolation: driver.IsolationLevel(sql.LevelReadCommitted), ReadOnly: true},
		{Isolation: driver.IsolationLevel(sql.LevelRepeatableRead)}, {Isolation: driver.IsolationLevel(sql.LevelSnapshot)},
		{Isolation: driver.IsolationLevel(sql.LevelSerializable)}, {Isolation: driver.IsolationLevel(sql.LevelSerializable), ReadOnly: true},
	} {
		const see = "SELECT current_setting('transaction_isolation') || current_setting('transaction_read_only')"
		tx := plainBegin(t, s, opts)
		want := pgValue(t, s, see)
		require.NoError(t, tx.Rollback())
		tx = lazyBegin(t, s, opts)
		require.Equal(t, want, pgValue(t, s, see))
		require.NoError(t, tx.Rollback())
	}
	_, want := s.Conn().(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelLinearizable)})
	_, err := s.(dialects.LazyBeginner).BeginWithNext(t.Context(), driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelLinearizable)})
	require.EqualError(t, err, want.Error())
	for _, inTask := range []bool{false, true} {
		ctx, end := t.Context(), func() {}
		if inTask {
			ctx, end = pooldriver.WithTask(ctx)
		}
		_, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelLinearizable})
		require.EqualError(t, err, want.Error())
		end()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.(dialects.LazyBeginner).BeginWithNext(ended, driver.TxOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, dialects.TxNone, s.TxStatus())
	pgExec(t, s, "INSERT INTO t VALUES (1)")
	require.Equal(t, dialects.TxNone, s.TxStatus())
}

func execs(text string, args ...any) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, text, args...)
		return err
	}
}

// firsts are what pgx's own interface can begin a transaction with.
var firsts = map[string]func(ctx context.Context, c *pgx.Conn) error{
	"a batch": func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue("INSERT INTO t VALUES ($1)", 1)
		b.Queue("SELECT pg_advisory_lock($1)", 8)
		return c.SendBatch(ctx, b).Close()
	},
	"a copy": func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"a"}, pgx.CopyFromRows([][]any{{1}}))
		return err
	},
	"a copy without a description": func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.PgConn().CopyFrom(ctx, strings.NewReader("1\n"), "COPY t FROM STDIN")
		return err
	},
	"a long copy": func(ctx context.Context, c *pgx.Conn) error {
		var text strings.Builder
		for i := range 300_000 {
			fmt.Fprintln(&text, -i)
		}
		_, err := c.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "COPY t FROM STDIN WHERE a = -1")
		return err
	},
	"a statement that is closed, and another": func(ctx context.Context, c *pgx.Conn) error {
		if err := c.Deallocate(ctx, "prepared"); err != nil {
			return err
		}
		return execs("INSERT INTO t VALUES (1)")(ctx, c)
	},
	"a prepared statement": execs("prepared", 1),
}

// cannotBeHeld are what a BEGIN cannot go ahead of. PgConn.ExecBatch writes past everything that pgx lets be put
// under it.
var cannotBeHeld = map[string]func(ctx context.Context, c *pgconn.PgConn) error{
	"a batch past pgx": func(ctx context.Context, c *pgconn.PgConn) error {
		b := &pgconn.Batch{}
		b.ExecParams("INSERT INTO t SELECT count(*) FROM t", nil, nil, nil, nil)
		return c.ExecBatch(ctx, b).Close()
	},
	"a pipeline of several": func(ctx context.Context, c *pgconn.PgConn) error {
		p := c.StartPipeline(ctx)
		var err error
		for range 2 {
			p.SendQueryParams("INSERT INTO t SELECT count(*) FROM t", nil, nil, nil, nil)
			p.SendPipelineSync()
		}
		err = p.Flush()
		return errors.Join(err, p.Close())
	},
}

func TestPostgresLazyTransactionRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	for what, call := range cannotBeHeld {
		t.Run(what, func(t *testing.T) {
			s, witness := lazyBed(t)
			lazyBegin(t, s, driver.TxOptions{})
			require.ErrorContains(t, call(t.Context(), pgNative(s).PgConn()), "execute another one first")
			require.Equal(t, dialects.TxLost, s.TxStatus())
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, pgRows(t, witness))

			s, witness = lazyBed(t)
			tx := lazyBegin(t, s, driver.TxOptions{})
			require.NoError(t, s.(dialects.LazyBeginner).BeginNow(t.Context()))
			require.NoError(t, call(t.Context(), pgNative(s).PgConn()))
			require.NoError(t, tx.Rollback())
			require.Zero(t, pgRows(t, witness))
		})
	}
}

// TestRawFindsALazyTransactionBegun, also if its first statement was not sent.
func TestRawFindsALazyTransactionBegun(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	_, err := account.OpenBare(t).Exec("CREATE TABLE t (a int)")
	require.NoError(t, err)
	db := sql.OpenDB(pooldriver.New(account.URL("pool_lazy_begin=true")))
	defer func() { require.NoError(t, db.Close()) }()
	inRaw := func(conn *sql.Conn, call func(ctx context.Context, c *pgconn.PgConn) error) error {
		return pooldriver.Raw(t.Context(), conn, func(c driver.Conn) error { return call(t.Context(), c.(*stdlib.Conn).Conn().PgConn()) })
	}
	for _, unsent := range []bool{false, true} {
		for _, call := range cannotBeHeld {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			if unsent {
				_, err = tx.Exec("INSERT INTO t VALUES ($1)", struct{ a chan int }{})
				require.Error(t, err)
			}
			require.NoError(t, inRaw(conn, call))
			require.NoError(t, tx.Rollback())
			require.NoError(t, conn.Close())
			require.Zero(t, pgRows(t, witness))
		}
	}
}

func TestPostgresLazyTransactionHoldsWhateverPgxBeginsItWith(t *testing.T) {
	t.Parallel()
	for what, first := range firsts {
		t.Run(what, func(t *testing.T) {
			s, witness := lazyBed(t)
			c := pgNative(s)
			for _, commit := range []bool{false, true} {
				_, err := c.Prepare(t.Context(), "prepared", "INSERT INTO t VALUES ($1)")
				require.NoError(t, err)
				tx := lazyBegin(t, s, driver.TxOptions{})
				require.NoError(t, first(t.Context(), c))
				require.Equal(t, "idle in transaction", pgActivity(t, witness, s))
				require.Equal(t, 0, pgRows(t, witness))
				require.NotNil(t, pgValue(t, s, "SELECT pg_current_xact_id_if_assigned()::text"))
				end, want := driver.Tx.Rollback, 0
				if commit {
					end, want = driver.Tx.Commit, 1
				}
				require.NoError(t, end(tx))
				require.Equal(t, want, pgRows(t, witness))
				_, err = s.Clean(t.Context(), dialects.Suspect)
				require.NoError(t, err)
			}
		})
	}
}

// A standby refuses SERIALIZABLE at BEGIN, and has nothing open then: whatever
// follows it would run in a transaction of its own. An advisory lock shows it.
func TestPostgresLazyTransactionThatCannotBeginExecutesNothingUntilItIsEnded(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithRestart())
	account := server.NewAccount(t)
	setup := account.OpenBare(t)
	_, err := setup.Exec("CREATE TABLE t (a int)")
	require.NoError(t, err)
	require.NoError(t, setup.Close())
	admin, err := server.Admin()
	require.NoError(t, err)
	var dir string
	require.NoError(t, admin.QueryRow("SHOW data_directory").Scan(&dir))
	_, err = admin.Exec("COPY (SELECT) TO '" + dir + "/standby.signal'")
	require.NoError(t, err)
	server.Restart(t)
	t.Cleanup(func() { // accounts are dropped at the end
		_, err := admin.Exec("SELECT pg_promote()")
		require.NoError(t, err)
	})
	witness := account.Witness(t)
	locked := func() (n int) {
		require.NoError(t, witness.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n))
		return n
	}

	all := maps.Clone(firsts)
	all["a simple query"] = execs("SELECT pg_advisory_lock(8)")
	all["a parameterised query"] = execs("SELECT pg_advisory_lock($1)", 8)
	all["a syntax error"] = execs("oops")
	serializable := driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelSerializable)}
	_, tmpl := pgTemplate(t, account.URL())
	for what, first := range all {
		t.Run(what, func(t *testing.T) {
			s := pgDial(t, tmpl)
			c := pgNative(s)
			_, err := s.Conn().(driver.ConnBeginTx).BeginTx(t.Context(), serializable)
			require.ErrorContains(t, err, "cannot use serializable mode in a hot standby")
			for _, commit := range []bool{false, true} {
				_, err := c.Prepare(t.Context(), "prepared", "SELECT pg_advisory_lock($1)")
				require.NoError(t, err)
				tx := lazyBegin(t, s, serializable)
				require.ErrorContains(t, first(t.Context(), c), "BEGIN, which was deferred to this statement: cannot use serializable mode in a hot standby")
				require.Equal(t, dialects.TxFailed, s.TxStatus())
				var aborted *pgconn.PgError
				require.ErrorAs(t, s.(dialects.LazyBeginner).BeginNow(t.Context()), &aborted)
				require.Equal(t, "25P02", aborted.Code)
				require.Equal(t, "idle", pgActivity(t, witness, s), "for the server there is none")
				for again, second := range all {
					if again != "a statement that is closed, and another" {
						require.ErrorContains(t, second(t.Context(), c), "current transaction is aborted", again)
					}
					require.Equal(t, dialects.TxFailed, s.TxStatus(), again)
				}
				require.NoError(t, c.Deallocate(t.Context(), "prepared"))
				require.NoError(t, s.Ping(t.Context()))
				require.Equal(t, dialects.TxFailed, s.TxStatus())
				require.Zero(t, locked())
				if commit {
					require.ErrorIs(t, tx.Commit(), pgx.ErrTxCommitRollback)
				} else {
					require.NoError(t, tx.Rollback())
				}
				require.Equal(t, dialects.TxNone, s.TxStatus())
				require.EqualValues(t, 5, pgValue(t, s, "SELECT 5::int8"))
				require.NoError(t, lazyBegin(t, s, driver.TxOptions{}).Commit())
			}
		})
	}
}

func TestPostgresLazyTransactionWhoseConnectionEndsIsLost(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	setup := account.OpenBare(t)
	_, err := setup.Exec("CREATE TABLE t (a int)")
	require.NoError(t, err)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Close()) }()
	_, tmpl := pgTemplate(t, account.Via(proxy.Addr()).URL())

	t.Run("the context ends during the first statement", func(t *testing.T) {
		s := pgDial(t, tmpl)
		lazyBegin(t, s, driver.TxOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, pgTry(ctx, s, "INSERT INTO t SELECT 1 FROM pg_sleep(20)"), context.DeadlineExceeded)
		require.Equal(t, dialects.TxLost, s.TxStatus())
		require.NoError(t, s.Close(t.Context()))
		require.Zero(t, pgRows(t, witness))
	})
	t.Run("the server ends it before the first statement", func(t *testing.T) {
		s := pgDial(t, tmpl)
		lazyBegin(t, s, driver.TxOptions{})
		_, err := witness.Exec("SELECT pg_terminate_backend($1, 5000)", pgPID(s))
		require.NoError(t, err)
		require.Error(t, pgTry(t.Context(), s, "INSERT INTO t VALUES (1)"))
		require.Equal(t, dialects.TxLost, s.TxStatus())
		require.Zero(t, pgRows(t, witness))
	})
	for text, args := range map[string][]any{"INSERT INTO t VALUES (1)": nil, "INSERT INTO t VALUES ($1)": {int64(1)}} {
		for _, direction := range []byteproxy.Direction{byteproxy.ToServer, byteproxy.ToClient} {
			for at := int64(0); at <= 80; at += 5 {
				s := pgDial(t, tmpl)
				tx := lazyBegin(t, s, driver.TxOptions{})
				proxy.Arm(byteproxy.Fault{Direction: direction, At: at, Cut: byteproxy.Reset})
				first := pgTry(t.Context(), s, text, args...)
				if first == nil {
					_ = tx.Commit() // which may have happened though its answer is lost
				}
				proxy.Disarm()
				_ = s.Close(t.Context())
				require.Eventually(t, func() bool { return listed(t, witness, pgPID(s)) == 0 }, slowMachine, time.Millisecond)
				if first != nil {
					require.Zerof(t, pgRows(t, witness), "cut %v at %d: a row without a commit", direction, at)
				}
				_, err = setup.Exec("DELETE FROM t")
				require.NoError(t, err)
			}
		}
	}
}

// TestTheFirstStatementOfALazyTransactionMovesToAnotherConnection when its own is killed: nothing of it is left.
// What may have done more runs once.
func TestTheFirstStatementOfALazyTransactionMovesToAnotherConnection(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness, bare := account.Witness(t), account.OpenBare(t)
	_, err := bare.Exec(`CREATE TABLE t (a int); CREATE FUNCTION own() RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (1) RETURNING a';
		CREATE PROCEDURE inserts() LANGUAGE sql AS 'INSERT INTO t VALUES (1)'; CREATE SEQUENCE s`)
	require.NoError(t, err)
	c := pooldriver.New(account.URL("pool_lazy_begin=true", "pool_max_conns=2"))
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	for _, tc := range []struct {
		text  string
		args  []any
		moves bool
	}{
		{"INSERT INTO t VALUES (1)", nil, true},
		{"INSERT INTO t VALUES ($1)", []any{1}, true},
		{"WITH w AS (INSERT INTO t VALUES ($1) RETURNING a) SELECT a FROM w", []any{1}, true},
		{"SELECT own()", nil, false},
		{"INSERT INTO t SELECT SetVal('s', last_value + 100) FROM s", nil, false},
		{"CALL inserts()", nil, false},
		{"INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)", nil, false},
	} {
		for _, second := range []bool{false, true} {
			holder, err := bare.Begin()
			require.NoError(t, err)
			_, err = holder.Exec("LOCK TABLE t")
			require.NoError(t, err)
			tx, err := db.Begin()
			require.NoError(t, err)
			if second {
				_, err = tx.Exec("SELECT 1")
				require.NoError(t, err)
			}
			done := make(chan error)
			go func() {
				_, err := tx.Exec(tc.text, tc.args...)
				done <- err
			}()
			const waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
			var pid int
			require.Eventually(t, func() bool { return witness.QueryRow(waiting).Scan(&pid) == nil }, 10*time.Second, time.Millisecond)
			_, err = witness.Exec("SELECT pg_terminate_backend($1, 5000)", pid)
			require.NoError(t, err)
			if tc.moves && !second {
				require.Eventually(t, func() bool { var other int; return witness.QueryRow(waiting).Scan(&other) == nil && other != pid }, 10*time.Second, time.Millisecond)
			}
			require.NoError(t, holder.Rollback())
			err, want := <-done, 0
			if tc.moves && !second {
				want = 1
				require.NoError(t, err, tc.text)
				require.NoError(t, tx.Commit())
			} else {
				require.Error(t, err, tc.text)
				require.Error(t, tx.Commit())
			}
			require.Equal(t, want, pgRows(t, witness), tc.text)
			_, err = bare.Exec("DELETE FROM t")
			require.NoError(t, err)
		}
	}
	require.EqualValues(t, 3, c.Stats().Retries)
}

// What has come unasked since the last statement is not mistaken for answers.
func TestPostgresLazyTransactionOfAListener(t *testing.T) {
	t.Parallel()
	s, witness := lazyBed(t)
	pgExec(t, s, "LISTEN n")
	for i := range 20 {
		_, err := witness.Exec("SELECT pg_notify('n', $1)", strings.Repeat("Z\x01", 100*i))
		require.NoError(t, err)
		tx, err := s.(dialects.LazyBeginner).BeginWithNext(t.Context(), driver.TxOptions{})
		if errors.Is(err, errors.ErrUnsupported) {
			tx = plainBegin(t, s, driver.TxOptions{})
		} else {
			require.NoError(t, err)
		}
		_, err = witness.Exec("SELECT pg_notify('n', $1)", strings.Repeat("Z\x01", 100*i))
		require.NoError(t, err)
		require.NoError(t, pgTry(t.Context(), s, "INSERT INTO t VALUES ($1)", int64(i)))
		require.NoError(t, tx.Commit())
		require.Equal(t, i+1, pgRows(t, witness))
		for range 2 {
			_, err := pgNative(s).WaitForNotification(t.Context())
			require.NoError(t, err)
		}
	}
}

func TestPostgresLazyTransactionGoesThroughTLS(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly()).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	tx := lazyBegin(t, s, driver.TxOptions{})
	pgExec(t, s, "CREATE TABLE t (a int)")
	require.NoError(t, tx.Commit())
	require.Equal(t, 0, pgRows(t, account.Witness(t)))
}

func TestPostgresWrappedConnectionBeginsAtOnce(t *testing.T) {
	t.Parallel()
	bare, _ := lazyBed(t)
	d, _ := pgTemplate(t, "postgres://u@h/d")
	tmpl, err := d.Wrap(stdlib.GetConnector(*pgNative(bare).Config()))
	require.NoError(t, err)
	s := pgDial(t, tmpl)
	_, err = s.(dialects.LazyBeginner).BeginWithNext(t.Context(), driver.TxOptions{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestPostgresLazyTransactionOfOneStatementTakesTwoRoundTripsInsteadOfThree(t *testing.T) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Close()) }()
	_, tmpl := pgTemplate(t, account.Via(proxy.Addr()).URL())
	s := pgDial(t, tmpl)
	pgExec(t, s, "CREATE TABLE t (a int)")
	for text, args := range map[string][]any{"INSERT INTO t VALUES (1)": nil, "INSERT INTO t VALUES ($1)": {int64(1)}} {
		trips := func(begin func(testing.TB, dialects.Session, driver.TxOptions) driver.Tx) int {
			proxy.Count()
			tx := begin(t, s, driver.TxOptions{})
			require.NoError(t, pgTry(t.Context(), s, text, args...))
			require.NoError(t, tx.Commit())
			return proxy.RoundTrips()
		}
		trips(plainBegin) // prepares the text
		for range 20 {
			require.Equal(t, []int{3, 2}, []int{trips(plainBegin), trips(lazyBegin)}, text)
		}
	}
}

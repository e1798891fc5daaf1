package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// stage is a database that tasks are tried on: an account of a server's, or a
// file of SQLite's. It has a table, ledger. What a task leaves there is asked of
// the database itself, past the pool.
type stage struct {
	name    string          // postgres, mysql or sqlite
	account testbed.Account // the zero value for SQLite
	file    string          // SQLite's
	witness *sql.DB         // sees what is committed
	odbc    bool            // the pool's way to it leads through ODBC
}

// suiteOverODBC: the suite runs once more over ODBC, where that was built in. That
// belongs to the long run: it takes more than twice the time, and libsqliteodbc may
// spin for ever in a disconnect on a busy machine.
func suiteOverODBC() bool { return randomtest.Long() }

// eachServer runs the test once per server, side by side, with an account of its own,
// and once more over ODBC.
func eachServer(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	testbed.Each(t, func(t *testing.T, account testbed.Account) { test(t, serverStage(t, account)) })
	if suiteOverODBC() {
		eachServerOverODBC(t, test)
	}
}

// serverStage is an account's stage, with its table.
func serverStage(t *testing.T, account testbed.Account) stage {
	t.Helper()
	s := stage{name: account.Server.Engine.String(), account: account, witness: account.Witness(t)}
	mustExec(t, s.witness, "CREATE TABLE ledger (id integer)")
	if s.name == "postgres" {
		mustExec(t, s.witness, "GRANT ALL ON ledger TO PUBLIC")
	} else {
		mustExec(t, s.witness, "UPDATE performance_schema.setup_instruments SET enabled = 'YES' WHERE name = 'wait/lock/metadata/sql/mdl'")
	}
	return s
}

// eachStage runs the test once per server and on SQLite.
func eachStage(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	eachServer(t, test)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, stage{name: "sqlite"}.fresh(t))
	})
	if suiteOverODBC() {
		sqliteOverODBC(t, test)
	}
}

// fresh returns a stage that no other test has played on, where that costs
// nothing: another file of SQLite's.
func (s stage) fresh(t *testing.T) stage {
	t.Helper()
	if s.name != "sqlite" {
		return s
	}
	s.file = filepath.Join(t.TempDir(), "stage.db")
	s.witness = s.openWitness(t)
	s.witness.SetMaxOpenConns(1)
	mustExec(t, s.witness, "CREATE TABLE ledger (id integer)")
	return s
}

// openWitness opens SQLite for one who looks. Two libraries of SQLite in a process
// do not see each other's locks: the witness has the pool's.
func (s stage) openWitness(t testing.TB) *sql.DB {
	t.Helper()
	if s.odbc {
		return s.openBareODBC(t, "Timeout=1") // which no PRAGMA changes
	}
	return s.openBare(t)
}

// openBare opens the bare driver under database/sql's own pool.
func (s stage) openBare(t testing.TB) *sql.DB {
	t.Helper()
	if s.odbc {
		return s.openBareODBC(t)
	}
	if s.name != "sqlite" {
		return s.account.OpenBare(t)
	}
	db, err := sql.Open("sqlite", s.file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// say picks the text for the stage's database.
func (s stage) say(postgres, mysql, sqlite string) string {
	if s.odbc && postgres == "$1" {
		return "?" // ODBC's placeholder, whatever the database
	}
	return map[string]string{"postgres": postgres, "mysql": mysql, "sqlite": sqlite}[s.name]
}

func (s stage) url(parameters ...string) string {
	if s.odbc {
		return s.odbcURL(parameters...)
	}
	if s.name == "sqlite" {
		parameters = append(parameters, "_pragma=busy_timeout(5000)", "_pragma=journal_mode(WAL)")
		return "sqlite:" + s.file + "?" + strings.Join(parameters, "&")
	}
	return s.account.URL(parameters...)
}

// stagePool is a pool of ours on a stage.
type stagePool struct {
	*sql.DB
	stage
	connector *pooldriver.Connector
}

// open returns a pool of at most limit connections, closed at the end of the test.
func (s stage) open(t testing.TB, limit int, options ...pooldriver.Option) stagePool {
	t.Helper()
	return s.openURL(t, s.url(fmt.Sprintf("pool_max_conns=%d", limit)), options...)
}

func (s stage) openURL(t testing.TB, url string, options ...pooldriver.Option) stagePool {
	t.Helper()
	connector := pooldriver.New(url, append([]pooldriver.Option{quiet}, options...)...)
	p := stagePool{DB: sql.OpenDB(connector), stage: s, connector: connector}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// lent is how many real connections have a borrower.
func (p stagePool) lent() int { return p.connector.Stats().Pool.Lent }

func (p stagePool) mustExec(ctx context.Context, t testing.TB, statement string) {
	t.Helper()
	_, err := p.ExecContext(ctx, statement)
	require.NoError(t, err, statement)
}

func insertInto(id int) string { return fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id) }

// count asks, through the pool, how many rows the ledger has.
func (p stagePool) count(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, p.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
	return n
}

// stored returns what is committed, in rising order.
func (s stage) stored(t testing.TB) []int {
	t.Helper()
	rows, err := s.witness.QueryContext(context.Background(), "SELECT id FROM ledger ORDER BY id")
	require.NoError(t, err)
	ids, err := scanned[int](rows)
	require.NoError(t, err)
	return ids
}

// scanned reads the only column of all rows, and closes them.
func scanned[T any](rows *sql.Rows) ([]T, error) {
	defer rows.Close()
	values := []T{}
	for rows.Next() {
		var value T
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}

// backends are the server's numbers of the account's connections, but for those
// that kill cancelled statements.
func (s stage) backends(ctx context.Context) ([]int64, error) {
	rows, err := s.witness.QueryContext(ctx, s.say(
		"SELECT pid FROM pg_stat_activity WHERE usename = $1 AND backend_type = 'client backend'",
		"SELECT id FROM information_schema.processlist WHERE user = ? AND db IS NOT NULL", ""), s.account.User)
	if err != nil {
		return nil, err
	}
	return scanned[int64](rows)
}

// setTenant sets the session's variable, askTenant asks for it: NULL is that nobody
// has set it. On SQLite there is none.
func (s stage) setTenant(n int) string {
	return fmt.Sprintf(s.say("SET app.tenant = '%d'", "SET @tenant = '%d'", ""), n)
}

func (s stage) askTenant() string {
	return s.say("SELECT nullif(current_setting('app.tenant', true), '')", "SELECT @tenant", "")
}

// self asks for the server's number of the connection that answers.
func (s stage) self() string { return s.say("SELECT pg_backend_pid()", "SELECT CONNECTION_ID()", "") }

// backend asks for the connection that serves ctx.
func (p stagePool) backend(ctx context.Context, t testing.TB) (id int64) {
	t.Helper()
	require.NoError(t, p.QueryRowContext(ctx, p.self()).Scan(&id))
	return id
}

// terminate ends a connection as an administrator does.
func (s stage) terminate(id int64) error {
	_, err := s.witness.ExecContext(context.Background(), fmt.Sprintf(s.say("SELECT pg_terminate_backend(%d)", "KILL %d", ""), id))
	return err
}

// kill returns when the server has dropped the connection.
func (s stage) kill(t testing.TB, id int64) {
	t.Helper()
	require.NoError(t, s.terminate(id))
	require.Eventually(t, func() bool {
		ids, err := s.backends(context.Background())
		return err == nil && !slices.Contains(ids, id)
	}, 10*time.Second, time.Millisecond, "the server keeps a connection that was killed")
}

// left says what of the account's the database has of transactions, locks and,
// where it tells, temporary tables. The empty string is nothing.
func (s stage) left(ctx context.Context) (string, error) {
	switch s.name {
	case "postgres":
		var left string
		err := s.witness.QueryRowContext(ctx, `SELECT coalesce(string_agg(what, ', '), '') FROM (
			SELECT format('%s %s since %s', pid, state, xact_start) AS what FROM pg_stat_activity WHERE usename = $1 AND xact_start IS NOT NULL
			UNION ALL SELECT format('%s lock of %s', locktype, pid) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE usename = $1
			UNION ALL SELECT 'temporary table ' || relname FROM pg_class WHERE relpersistence = 't') AS found`, s.account.User).Scan(&left)
		return left, err
	case "mysql":
		return s.leftOnMySQL(ctx)
	default:
		conn, err := s.witness.Conn(ctx)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		for _, statement := range []string{"PRAGMA busy_timeout = 0", "BEGIN IMMEDIATE", "ROLLBACK"} {
			if _, err = conn.ExecContext(ctx, statement); err != nil {
				break
			}
		}
		_, settled := conn.ExecContext(ctx, "PRAGMA busy_timeout = 5000")
		if err != nil && strings.Contains(err.Error(), "locked") {
			return err.Error(), settled
		}
		return "", errors.Join(err, settled)
	}
}

func (s stage) leftOnMySQL(ctx context.Context) (string, error) {
	rows, err := s.witness.QueryContext(ctx, `SELECT CONCAT(object_type, ' ', lock_type, ' lock of ', p.id)
		FROM performance_schema.metadata_locks JOIN performance_schema.threads AS t ON t.thread_id = owner_thread_id
		JOIN information_schema.processlist AS p ON p.id = t.processlist_id WHERE p.user = ?`, s.account.User)
	if err != nil {
		return "", err
	}
	left, err := scanned[string](rows)
	if err != nil {
		return "", err
	}
	open, err := s.account.Transactions(ctx)
	if err != nil {
		return "", err
	}
	for _, tx := range open {
		left = append(left, fmt.Sprintf("transaction of %d", tx.Connection))
	}
	return strings.Join(left, ", "), nil
}

// promptly is how soon after a task's end the server must have nothing of it.
// Statements of SQLite's over ODBC cannot be interrupted: those of the tests take a
// second or two.
func (s stage) promptly() time.Duration {
	if s.odbc && s.name == "sqlite" {
		return 10 * time.Second
	}
	if randomtest.Long() { // the long tests keep a machine busy
		return time.Second
	}
	return 100 * time.Millisecond
}

// requireNothingLeft is called when a task's end has returned. The pool must
// have its connections back, and the server nothing of the task.
func (p stagePool) requireNothingLeft(t *testing.T) {
	t.Helper()
	const pause = 5 * time.Millisecond
	for late := time.Duration(0); ; late += pause { // without the time that looking takes
		left, err := p.left(context.Background())
		require.NoError(t, err)
		lent := p.lent()
		if left == "" && lent == 0 {
			return
		}
		// The server ends the transaction of a session that was killed in its own time.
		if late > p.promptly() && (lent > 0 || late > 10*time.Second) {
			require.Failf(t, "something is left", "%v after the end: %d connections lent; on the server: %s", late, lent, left)
		}
		time.Sleep(pause)
	}
}

// requireCutOffEnded waits for connections that were cut off.
func (p stagePool) requireCutOffEnded(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return p.connector.Stats().Pool.Destroying == 0 },
		10*time.Second, time.Millisecond, "connections that were cut off do not come to their end")
}

// requireAtRest checks that each connection was closed once or is there, for
// the pool and for the server.
func (p stagePool) requireAtRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return p.connector.Stats().Pool.Active == 0 },
		10*time.Second, time.Millisecond, "not at rest")
	stats := p.connector.Stats()
	require.Equal(t, stats.Pool.Creates, uint64(stats.Pool.Count)+stats.Pool.Destroyed.Sum(), "%+v", stats.Pool)
	require.Zero(t, stats.Orphans)
	if p.name != "sqlite" {
		awaitBackends(t, p.account, stats.Pool.Count)
	}
}

// traces are what leftovers leave in a session, and how one who must not see
// them looks: an error or a false is as it should be.
func (s stage) traces() []string {
	return map[string][]string{
		"postgres": {
			"SELECT coalesce(current_setting('app.tenant', true), '') <> ''",
			"SELECT count(*) >= 0 FROM left_behind",
			"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
		},
		"mysql": {
			"SELECT @tenant IS NOT NULL",
			"SELECT count(*) >= 0 FROM left_behind",
		},
		"sqlite": {"SELECT count(*) >= 0 FROM left_behind"},
	}[s.name]
}

// requireNextBorrowersSeeNothing borrows all of the pool's connections at once.
func (p stagePool) requireNextBorrowersSeeNothing(t *testing.T) {
	t.Helper()
	for range p.connector.Stats().Pool.Max {
		conn, err := p.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.PingContext(t.Context()))
		for _, trace := range p.traces() {
			var seen bool
			_ = conn.QueryRowContext(t.Context(), trace).Scan(&seen)
			require.False(t, seen, trace)
		}
	}
}

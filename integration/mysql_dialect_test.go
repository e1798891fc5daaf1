package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// mysqlTemplate reads a DSN as the pool would.
func mysqlTemplate(t testing.TB, dsn string) (dialects.Dialect, dialects.Template) {
	t.Helper()
	d, err := dialects.Find(dsn)
	require.NoError(t, err)
	require.Equal(t, "mysql", d.Name())
	template, err := d.Parse(dsn)
	require.NoError(t, err)
	return d, template
}

// mysqlSession dials one session, which the test or its clean-up ends.
func mysqlSession(t testing.TB, template dialects.Template) dialects.Session {
	t.Helper()
	s, err := template.Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Conn().Close() })
	return s
}

func run(t testing.TB, s dialects.Session, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := s.Conn().(driver.ExecerContext).ExecContext(t.Context(), statement, nil)
		require.NoError(t, err, statement)
	}
}

// read returns a query's rows as text.
func read(t testing.TB, s dialects.Session, query string) string {
	t.Helper()
	answer, err := tryRead(t.Context(), s, query)
	require.NoError(t, err, query)
	return answer
}

func tryRead(ctx context.Context, s dialects.Session, query string) (string, error) {
	rows, err := s.Conn().(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	var answer strings.Builder
	values := make([]driver.Value, len(rows.Columns()))
	for err = rows.Next(values); err == nil; err = rows.Next(values) {
		for _, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			fmt.Fprintf(&answer, "%v|", v)
		}
	}
	if !errors.Is(err, io.EOF) {
		return "", errors.Join(err, rows.Close())
	}
	return answer.String(), rows.Close()
}

// closeWell ends a session and returns how long the server took.
func closeWell(t testing.TB, s dialects.Session) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slowMachine)
	defer cancel()
	began := time.Now()
	require.NoError(t, s.Close(ctx))
	return time.Since(began)
}

const sessionState = `SELECT @@character_set_client, @@character_set_connection, @@character_set_results,
	@@collation_connection, DATABASE(), CURRENT_ROLE(), @@autocommit, @@sql_mode, @@time_zone, @@tx_isolation,
	@@foreign_key_checks, @@max_allowed_packet, @a, LAST_INSERT_ID(), @@sql_safe_updates, @@wait_timeout`

// stateQuery names the isolation variable as the server does.
func stateQuery(t testing.TB, s dialects.Session) string {
	t.Helper()
	if strings.Contains(read(t, s, "SELECT VERSION()"), "MariaDB") {
		return sessionState
	}
	return strings.ReplaceAll(sessionState, "@@tx_isolation", "@@transaction_isolation")
}

func TestMySQLCleanBringsBackTheStateAtConnect(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	run(t, mysqlSession(t, second(mysqlTemplate(t, account.URL()))),
		"CREATE TABLE kept (id INT PRIMARY KEY AUTO_INCREMENT, v INT)", "CREATE TABLE locked (id INT)")
	for _, parameters := range []string{
		"",
		"charset=latin1",
		"charset=nosuch,utf8mb4&collation=utf8mb4_bin",
		"collation=utf8mb4_unicode_ci",
		"collation=latin1_swedish_ci",
		"sql_mode=%27ANSI%27&time_zone=%27%2B05:00%27&foreign_key_checks=0",
		"charset=latin1&sql_safe_updates=1&wait_timeout=77&character_set_results=NULL",
		"multiStatements=true&interpolateParams=true&parseTime=true",
		"tls=skip-verify&charset=latin1&sql_mode=%27ANSI%27",
	} {
		t.Run(parameters, func(t *testing.T) {
			_, template := mysqlTemplate(t, account.URL(parameters))
			for _, lap := range []string{"first connection", "second connection"} {
				s := mysqlSession(t, template)
				query := stateQuery(t, s)
				before := read(t, s, query)
				for range 2 {
					run(t, s,
						"SET NAMES cp1251", "SET @a = 1", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
						"SET sql_mode = ''", "SET time_zone = '-03:00'", "SET foreign_key_checks = 1 - @@foreign_key_checks",
						"SET sql_safe_updates = 0, wait_timeout = 1234",
						"SET ROLE "+account.Role,
						"INSERT INTO "+account.Database+".kept (v) VALUES (1)",
						"CREATE TEMPORARY TABLE passing (id INT)",
						"PREPARE hidden FROM 'SELECT 1'",
						"DO GET_LOCK('"+account.Database+".1', 1)",
						"USE information_schema",
						"LOCK TABLES "+account.Database+".locked WRITE",
						"SET autocommit = 0",
					)
					require.Equal(t, dialects.TxImplicit, s.TxStatus(), "autocommit is off: the next statement opens a transaction")
					require.NoError(t, s.Rollback(t.Context()))
					require.Equal(t, dialects.TxNone, s.TxStatus())

					kept, err := s.Clean(t.Context(), dialects.Stateful|dialects.ForgetPrepared|dialects.NamedPrepared)
					require.NoError(t, err)
					require.False(t, kept)
					require.Equal(t, dialects.TxNone, s.TxStatus())
					require.Equal(t, before, read(t, s, query), lap)

					_, err = tryRead(t.Context(), s, "SELECT * FROM passing")
					require.Error(t, err, "the temporary table is gone")
					_, err = tryRead(t.Context(), s, "EXECUTE hidden")
					require.Error(t, err, "the prepared statement is gone")
					_, held, err := account.LockHolder(t.Context(), 1)
					require.NoError(t, err)
					require.False(t, held, "the lock is free")
					other := mysqlSession(t, template)
					run(t, other, "SET lock_wait_timeout = 2", "INSERT INTO locked VALUES (1)")
					closeWell(t, other)
				}
				closeWell(t, s)
			}
		})
	}
}

func second(_ dialects.Dialect, template dialects.Template) dialects.Template { return template }

func TestMySQLCleanRollsBackWhatAnErrorLeftOpen(t *testing.T) {
	t.Parallel()
	// A procedure that begins a transaction and then fails: the error packet has
	// no status, so that nobody on this side knows.
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	s := mysqlSession(t, second(mysqlTemplate(t, account.URL())))
	run(t, s, "CREATE TABLE kept (id INT)",
		"CREATE PROCEDURE halfway() BEGIN START TRANSACTION; INSERT INTO kept VALUES (1); SIGNAL SQLSTATE '45000'; END")
	_, err := s.Conn().(driver.ExecerContext).ExecContext(t.Context(), "CALL halfway()", nil)
	require.Error(t, err)
	_, err = s.Clean(t.Context(), dialects.Suspect)
	require.NoError(t, err)
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.Equal(t, "0|", read(t, s, "SELECT COUNT(*) FROM kept"))
	closeWell(t, s)
}

func TestMySQLStatementsClosedAfterCleanDoNotHitNewOnes(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	s := mysqlSession(t, second(mysqlTemplate(t, account.URL())))
	prepare := func(query string) driver.Stmt {
		stmt, err := s.Conn().Prepare(query)
		require.NoError(t, err)
		return stmt
	}
	old := []driver.Stmt{prepare("SELECT 1"), prepare("SELECT 2")}
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	fresh := []driver.Stmt{prepare("SELECT 3"), prepare("SELECT 4")}
	for _, stmt := range old {
		require.NoError(t, stmt.Close())
	}
	for i, stmt := range fresh {
		rows, err := stmt.(driver.StmtQueryContext).QueryContext(t.Context(), nil)
		require.NoError(t, err)
		value := make([]driver.Value, 1)
		require.NoError(t, rows.Next(value))
		require.EqualValues(t, 3+i, value[0])
		require.NoError(t, rows.Close())
		require.NoError(t, stmt.Close())
	}
	closeWell(t, s)
}

func TestMySQLStatementDroppedByCleanIsDiagnosedAsStale(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	d, template := mysqlTemplate(t, account.URL())
	s := mysqlSession(t, template)
	stmt, err := s.Conn().Prepare("SELECT 1")
	require.NoError(t, err)
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	_, err = stmt.(driver.StmtQueryContext).QueryContext(t.Context(), nil)
	require.Equal(t, dialects.StaleStatement, d.Diagnose(err))
	closeWell(t, s)
}

func TestMySQLCleanRefusesWhatItCannotBringBack(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	nowhere := account
	nowhere.Database = ""
	for _, c := range []struct {
		name, dsn string
		effect    dialects.Effect
	}{
		{"compression", account.URL("compress=true"), dialects.Stateful},
		{"USE where there was no database", nowhere.URL(), dialects.Stateful | dialects.ForgetPrepared},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mysqlSession(t, second(mysqlTemplate(t, c.dsn)))
			if c.effect&dialects.ForgetPrepared != 0 {
				run(t, s, "USE information_schema")
			}
			_, err := s.Clean(t.Context(), c.effect)
			require.ErrorIs(t, err, dialects.ErrCannotClean)
			require.Equal(t, "1|", read(t, s, "SELECT 1"), "nothing was sent that the driver does not know of")
			require.Equal(t, dialects.TxNone, s.TxStatus())
			require.Equal(t, dialects.Alive, s.Peek())
			closeWell(t, s)
		})
	}
}

func TestMySQLCleanRefusesWhereTheServerHasAnInitConnect(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.MySQL, testbed.WithArguments("--init-connect=SET @a=1")).NewAccount(t)
	s := mysqlSession(t, second(mysqlTemplate(t, account.URL())))
	require.Equal(t, "1|", read(t, s, "SELECT @a"))
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
	closeWell(t, s)
}

func TestMySQLTxStatusIsTheServersWord(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	s := mysqlSession(t, second(mysqlTemplate(t, account.URL())))
	for _, step := range []struct {
		statement string
		want      dialects.TxStatus
	}{
		{"CREATE TABLE kept (id INT PRIMARY KEY)", dialects.TxNone},
		{"BEGIN", dialects.TxOpen},
		{"INSERT INTO kept VALUES (1)", dialects.TxOpen},
		{"COMMIT", dialects.TxNone},
		{"START TRANSACTION", dialects.TxOpen},
		{"CREATE TABLE other (id INT)", dialects.TxNone}, // commits by itself
		{"SET autocommit = 0", dialects.TxImplicit},
		{"INSERT INTO kept VALUES (2)", dialects.TxImplicit},
		{"SET autocommit = 1", dialects.TxNone},
	} {
		run(t, s, step.statement)
		require.Equal(t, step.want, s.TxStatus(), step.statement)
	}
	_, err := s.Conn().(driver.ExecerContext).ExecContext(t.Context(), "INSERT INTO kept VALUES (1)", nil)
	require.Error(t, err)
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()), "with none open it does no harm")
	closeWell(t, s)
	require.Equal(t, dialects.TxLost, s.TxStatus())
}

// TestMySQLAutocommitThatIsOffAtConnectIsRefused: by the DSN, by the server's global
// variable, by init_connect. The DSN can turn it on again.
func TestMySQLAutocommitThatIsOffAtConnectIsRefused(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	refused := func(name string, db *sql.DB) {
		defer db.Close()
		require.ErrorContains(t, db.PingContext(t.Context()), "write autocommit=1 into the DSN", name)
	}
	refused("DSN", openPool(t, account, "autocommit=0"))
	refused("Wrap", sql.OpenDB(pooldriver.Wrap(connectorOf(t, account, "autocommit=0"), quiet)))
	other := testbed.Start(t, testbed.MySQL).NewAccount(t)
	for _, set := range []string{"SET GLOBAL autocommit = 0", "SET GLOBAL autocommit = 1, GLOBAL init_connect = 'SET autocommit = 0'"} {
		mustExec(t, other.Witness(t), set)
		refused(set, openPool(t, other))
	}
	require.NoError(t, openPool(t, other, "autocommit=1").Ping())
}

// TestMySQLAutocommitTurnedOffEndsWithItsStatementOnADBAndIsATransactionOnAConn.
func TestMySQLAutocommitTurnedOffEndsWithItsStatementOnADBAndIsATransactionOnAConn(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=2", "multiStatements=true")
	mustExec(t, db, "CREATE TABLE ledger (id INT)")
	mustExec(t, db, "SET autocommit = 0")
	mustExec(t, db, "INSERT INTO ledger VALUES (1)")
	mustExec(t, db, "SET autocommit = 0; INSERT INTO ledger VALUES (2); COMMIT") // as a dump does
	mustExec(t, db, "INSERT INTO ledger VALUES (3)")

	conn := take(t, t.Context(), db)
	execOn(t, t.Context(), conn, "SET autocommit = 0")
	execOn(t, t.Context(), conn, "INSERT INTO ledger VALUES (4)")
	mustExec(t, db, "INSERT INTO ledger VALUES (5)")
	execOn(t, t.Context(), conn, "ROLLBACK")
	require.NoError(t, conn.Close())
	rows, err := account.Witness(t).Query("SELECT id FROM ledger ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	var stored []int
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		stored = append(stored, id)
	}
	require.Equal(t, []int{1, 2, 3, 5}, stored)
}

func TestMySQLCloseMakesRoomForTheNextConnection(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	_, template := mysqlTemplate(t, account.URL())
	account.LimitConnections(t, 1) // the server refuses the second
	watch := account.Watch(t)
	longest := time.Duration(0)
	for range randomtest.Rounds(200, 2000) {
		s := mysqlSession(t, template)
		run(t, s, "CREATE TEMPORARY TABLE passing (id INT)")
		longest = max(longest, closeWell(t, s))
	}
	peak := watch.Stop()
	t.Logf("the longest Close took %v; %d connections at most in %d looks", longest, peak.Backends, peak.Samples)
	require.NotZero(t, peak.Samples)
}

func TestMySQLCloseStopsACancelledStatement(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	_, template := mysqlTemplate(t, account.URL())
	wrapped := func() dialects.Template {
		config, err := mysql.ParseDSN(strings.ReplaceAll(strings.TrimPrefix(account.URL(), "mysql://"), "@"+account.Addr, "@tcp("+account.Addr+")"))
		require.NoError(t, err)
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		d, err := dialects.Find("mysql:")
		require.NoError(t, err)
		w, err := d.Wrap(connector)
		require.NoError(t, err)
		return w
	}
	run(t, mysqlSession(t, template), "CREATE TABLE kept (id INT PRIMARY KEY)")
	for _, c := range []struct {
		name     string
		template dialects.Template
	}{
		{"by DSN", template},
		{"with TLS", second(mysqlTemplate(t, account.URL("tls=skip-verify")))},
		{"by connector", wrapped()},
	} {
		t.Run(c.name, func(t *testing.T) {
			baseline, _, err := account.Backends(t.Context())
			require.NoError(t, err)
			s := mysqlSession(t, c.template)
			run(t, s, "BEGIN", "INSERT INTO kept VALUES (1)")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = tryRead(ctx, s, "SELECT SLEEP(60)")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, dialects.TxLost, s.TxStatus())
			took := closeWell(t, s)
			t.Logf("Close took %v", took)
			require.Less(t, took, 30*time.Second, "the statement would take a minute")
			// No other session could have the lock while the statement's lives on.
			other := mysqlSession(t, template)
			run(t, other, "SET innodb_lock_wait_timeout = 20", "INSERT INTO kept VALUES (1)", "DELETE FROM kept")
			closeWell(t, other)
			requireBackends(t, account, baseline)
		})
	}
}

// requireBackends waits until the account has n connections, those that kill
// included: a server lists a connection for a moment after it has closed it.
func requireBackends(t *testing.T, account testbed.Account, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		counted, exempt, err := account.Backends(t.Context())
		return err == nil && counted+exempt == n
	}, slowMachine, time.Millisecond)
}

func TestMySQLManyCancelledStatementsShareOneKiller(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	_, template := mysqlTemplate(t, account.URL())
	const many = 12
	var sessions []dialects.Session
	for range many {
		sessions = append(sessions, mysqlSession(t, template))
	}
	watch := account.Watch(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, s := range sessions {
		running.Go(func() { _, _ = tryRead(ctx, s, "SELECT SLEEP(60)") })
	}
	witness := account.Witness(t)
	require.Eventually(t, func() bool {
		var n int
		err := witness.QueryRow("SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_user = ? AND processlist_info LIKE 'SELECT SLEEP%'", account.User).Scan(&n)
		return err == nil && n == many
	}, slowMachine, time.Millisecond)
	cancel()
	running.Wait()
	began := time.Now()
	for _, s := range sessions {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), slowMachine)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	counted, _, err := account.Backends(t.Context())
	require.NoError(t, err)
	require.Zero(t, counted)
	requireBackends(t, account, 0)
	peak := watch.Stop()
	t.Logf("%d statements were killed in %v; %d connections at most, and %d that killed", many, took, peak.Backends, peak.Killers)
	require.LessOrEqual(t, peak.Killers, 2, "one, and the one before it, of which the server may not be rid yet")
	require.LessOrEqual(t, peak.Backends, many)
}

func TestMySQLCloseWithRowsOpenNeedsNoKillWhereTheServerIsDone(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	_, template := mysqlTemplate(t, account.URL())
	witness := account.Witness(t)
	logins := func() (n int) { // of the account, so far
		require.NoError(t, witness.QueryRow("SELECT COALESCE(SUM(total_connections), 0) FROM performance_schema.users WHERE user = ?", account.User).Scan(&n))
		return n
	}
	for try := 1; ; try++ { // a server that has not noticed the hang-up for 20 ms is asked by a KILL
		before := logins()
		s := mysqlSession(t, template)
		rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT 2", nil)
		require.NoError(t, err)
		require.NoError(t, rows.Next(make([]driver.Value, 1)))
		closeWell(t, s)
		requireBackends(t, account, 0)
		if logins() == before+1 {
			return
		}
		require.Less(t, try, mostTries, "a connection was opened to kill")
	}
}

func TestMySQLPeekSeesTheServersGoodbye(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	for _, parameter := range []string{"", "tls=skip-verify"} {
		inTime(t, time.Second, func() time.Duration {
			s := mysqlSession(t, second(mysqlTemplate(t, account.URL(parameter))))
			require.Equal(t, dialects.Alive, s.Peek())
			require.NoError(t, s.Ping(t.Context()))
			account.KillIdle(t, 1)
			require.Eventually(t, func() bool { return s.Peek() == dialects.Dead }, slowMachine, time.Millisecond)
			before, counted := s.Sent()
			require.True(t, counted)
			require.NotZero(t, before)
			return closeWell(t, s)
		})
	}
}

func TestMySQLWrongPasswordIsDiagnosedAndNotShown(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	d, template := mysqlTemplate(t, account.URL())
	_, err := template.Dial(t.Context(), &dialects.Credential{User: account.User, Password: "wrong-password"})
	require.Equal(t, dialects.AuthFailed, d.Diagnose(err))
	require.NotContains(t, err.Error(), "wrong-password")
	s, err := template.Dial(t.Context(), &dialects.Credential{User: account.User, Password: account.Password})
	require.NoError(t, err)
	closeWell(t, s)
}

func TestMySQLCleanIsCheaperThanAConnection(t *testing.T) {
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	_, template := mysqlTemplate(t, account.URL())
	s := mysqlSession(t, template)
	const laps = 200
	median := func(laps int, lap func()) time.Duration {
		var took []time.Duration
		for range laps {
			began := time.Now()
			lap()
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[laps/2]
	}
	clean := median(laps, func() {
		_, err := s.Clean(t.Context(), dialects.Stateful)
		require.NoError(t, err)
	})
	redial := median(laps/4, func() { closeWell(t, mysqlSession(t, template)) })
	t.Logf("Clean %v, close and dial %v", clean, redial)
	require.Less(t, clean, redial)
	closeWell(t, s)
}

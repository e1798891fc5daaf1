package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// pgTemplate parses the account's DSN as the pool would.
func pgTemplate(t testing.TB, dsn string) (dialects.Dialect, dialects.Template) {
	t.Helper()
	d, err := dialects.Find(dsn)
	require.NoError(t, err)
	tmpl, err := d.Parse(dsn)
	require.NoError(t, err)
	return d, tmpl
}

func pgDial(t testing.TB, tmpl dialects.Template) dialects.Session {
	t.Helper()
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func pgTry(ctx context.Context, s dialects.Session, query string, args ...any) error {
	named := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	_, err := s.Conn().(driver.ExecerContext).ExecContext(ctx, query, named)
	return err
}

func pgExec(t testing.TB, s dialects.Session, query string) {
	t.Helper()
	require.NoError(t, pgTry(t.Context(), s, query), query)
}

// pgValue returns the first column of the first row, or nil.
func pgValue(t testing.TB, s dialects.Session, query string) driver.Value {
	t.Helper()
	rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), query, nil)
	require.NoError(t, err, query)
	defer func() { require.NoError(t, rows.Close()) }()
	dest := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(dest); errors.Is(err, io.EOF) {
		return nil
	}
	require.NoError(t, err)
	return dest[0]
}

func pgPID(s dialects.Session) uint32 { return s.Conn().(*stdlib.Conn).Conn().PgConn().PID() }

// listed counts the backend in the server's own list.
func listed(t testing.TB, witness *sql.DB, pid uint32) int {
	t.Helper()
	var n int
	require.NoError(t, witness.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n))
	return n
}

func TestPostgresStatusIsTheServersWord(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	for _, step := range []struct {
		query string
		want  dialects.TxStatus
	}{
		{"SELECT 1", dialects.TxNone},
		{"/* hidden */ BEGIN; SELECT 1", dialects.TxOpen},
		{"SELECT 1/0", dialects.TxFailed},
		{"ROLLBACK", dialects.TxNone},
		{"START TRANSACTION READ ONLY", dialects.TxOpen},
		{"COMMIT AND CHAIN", dialects.TxOpen},
	} {
		_ = pgTry(t.Context(), s, step.query)
		require.Equal(t, step.want, s.TxStatus(), step.query)
	}
	require.NoError(t, s.Rollback(t.Context()))
	require.Equal(t, dialects.TxNone, s.TxStatus())

	before, ok := s.Sent()
	require.True(t, ok)
	require.NoError(t, s.Rollback(t.Context()), "none is open")
	after, _ := s.Sent()
	require.Equal(t, before, after, "nothing to roll back, nothing to send")
	require.NoError(t, s.Ping(t.Context()))
	after, _ = s.Sent()
	require.Greater(t, after, before)
}

// Every kind of state that a session can carry, how to see it, and what is
// seen in a session that has just begun.
var pgState = []struct{ name, set, see string }{
	{"setting", "SET work_mem = '1234kB'", "SELECT current_setting('work_mem')"},
	{"setting of the DSN", "SET application_name = 'other'", "SELECT current_setting('application_name')"},
	{"setting of the DSN's options", "SET statement_timeout = '7s'", "SELECT current_setting('statement_timeout')"},
	{"setting of our own", "SET my.tenant = '7'", "SELECT coalesce(nullif(current_setting('my.tenant', true), ''), 'none')"},
	{"search path", "SET search_path = pg_catalog", "SELECT current_setting('search_path')"},
	{"role", "SET ROLE {role}", "SELECT current_user::text"},
	{"isolation", "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SELECT current_setting('default_transaction_isolation')"},
	{"temporary table", "CREATE TEMP TABLE leak (a int)", "SELECT count(*) FROM pg_class WHERE relname = 'leak'"},
	{"cursor", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "SELECT count(*) FROM pg_cursors WHERE name = 'c'"},
	{"channel", "LISTEN leak", "SELECT count(*) FROM pg_listening_channels()"},
	{"advisory lock", "SELECT pg_advisory_lock(77)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"},
	{"named statement", "PREPARE leak AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements WHERE name = 'leak'"},
}

func TestPostgresCleanBringsTheSessionBackToItsStateAtConnect(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL("application_name=fromdsn", "options=-c%20statement_timeout%3D54s"))
	s := pgDial(t, tmpl)

	fresh := map[string]driver.Value{}
	for _, state := range pgState {
		fresh[state.name] = pgValue(t, s, state.see)
	}
	require.Equal(t, "fromdsn", fresh["setting of the DSN"])
	require.Equal(t, "54s", fresh["setting of the DSN's options"])

	names := strings.NewReplacer("{role}", account.Role)
	for _, state := range pgState {
		t.Run(state.name, func(t *testing.T) {
			pgExec(t, s, names.Replace(state.set))
			require.NotEqual(t, fresh[state.name], pgValue(t, s, state.see), "the state is not seen")
			effect := dialects.Stateful
			if state.name == "named statement" {
				effect |= dialects.NamedPrepared
			}
			_, err := s.Clean(t.Context(), effect)
			require.NoError(t, err)
			require.Equal(t, fresh[state.name], pgValue(t, s, state.see))
		})
	}

	pgExec(t, s, "CREATE SEQUENCE seq")
	pgExec(t, s, "SELECT nextval('seq')")
	pgExec(t, s, "SELECT currval('seq')")
	_, err := s.Clean(t.Context(), dialects.Suspect)
	require.NoError(t, err)
	require.ErrorContains(t, pgTry(t.Context(), s, "SELECT currval('seq')"), "not yet defined")
}

func TestPostgresCleanGivesASessionBackToItsUser(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, err := account.Witness(t).Exec("ALTER ROLE " + account.User + " SUPERUSER")
	require.NoError(t, err)
	_, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	pgExec(t, s, "SET SESSION AUTHORIZATION "+account.Role)
	require.Equal(t, account.Role, pgValue(t, s, "SELECT session_user::text"))
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	require.Equal(t, account.User, pgValue(t, s, "SELECT session_user::text"))
	require.Equal(t, account.User, pgValue(t, s, "SELECT current_user::text"))
}

// A connector of pgx's own that is wrapped is cleaned like any other; what a
// hook has set up would be lost by it.
func TestPostgresCleanLeavesAloneWhatAHookHasSetUp(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	hooked := config.Copy()
	hooked.AfterConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		return pg.Exec(ctx, "SET work_mem = '1234kB'").Close()
	}
	name := stdlib.RegisterConnConfig(config)
	defer stdlib.UnregisterConnConfig(name)
	registered, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(name)
	require.NoError(t, err)
	d, _ := pgTemplate(t, account.URL())
	for what, c := range map[string]struct {
		connector driver.Connector
		want      error
	}{
		"no hook":                {stdlib.GetConnector(*config), nil},
		"opened by its name":     {registered, nil},
		"a hook of the option's": {stdlib.GetConnector(*config, stdlib.OptionAfterConnect(func(context.Context, *pgx.Conn) error { return nil })), dialects.ErrCannotClean},
		"a hook of pgconn's":     {stdlib.GetConnector(*hooked), dialects.ErrCannotClean},
		"somebody else's":        {foreignConnector{stdlib.GetConnector(*config)}, dialects.ErrCannotClean},
	} {
		t.Run(what, func(t *testing.T) {
			tmpl, err := d.Wrap(c.connector)
			require.NoError(t, err)
			s := pgDial(t, tmpl)
			_, err = s.Clean(t.Context(), dialects.Stateful)
			require.ErrorIs(t, err, c.want)
		})
	}
}

type foreignConnector struct{ driver.Connector }

func TestPostgresCleanSetsTheRoleBackToTheOneOfTheDSN(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL("options=-c%20role%3D"+account.Role))
	s := pgDial(t, tmpl)
	require.Equal(t, account.Role, pgValue(t, s, "SELECT current_user::text"))
	pgExec(t, s, "SET ROLE NONE")
	require.Equal(t, account.User, pgValue(t, s, "SELECT current_user::text"))
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	require.Equal(t, account.Role, pgValue(t, s, "SELECT current_user::text"))
}

func TestPostgresCleanKeepsPreparedStatementsUnlessTheyMayMeanSomethingElse(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	prepared := func() int64 {
		return pgValue(t, s, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%kept%'").(int64)
	}
	run := func() { require.NoError(t, pgTry(t.Context(), s, "SELECT $1::int /* kept */", 1)) }

	run()
	kept, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	require.True(t, kept)
	require.EqualValues(t, 2, prepared(), "the statement and the question for it")
	run()

	for _, effect := range []dialects.Effect{dialects.Stateful | dialects.ForgetPrepared, dialects.Stateful | dialects.NamedPrepared} {
		kept, err = s.Clean(t.Context(), effect)
		require.NoError(t, err)
		require.False(t, kept)
		require.EqualValues(t, 1, prepared(), "the question alone")
		run()
	}
}

func TestPostgresCleanLeavesNoNotificationBehind(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	pgExec(t, s, "LISTEN a")
	for range 3 {
		pgExec(t, pgDial(t, tmpl), "NOTIFY a, 'for the last borrower'")
	}
	require.NoError(t, s.Ping(t.Context())) // brings them into pgx's buffer
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)

	pgExec(t, s, "LISTEN a")
	pgExec(t, s, "NOTIFY a, 'for the next'")
	n, err := s.Conn().(*stdlib.Conn).Conn().WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "for the next", n.Payload)
	require.Equal(t, dialects.TxNone, s.TxStatus())
}

func TestPostgresCloseReturnsWhenTheBackendIsGone(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	_, tmpl := pgTemplate(t, account.URL())
	closed := func(t *testing.T, s dialects.Session) {
		pid := pgPID(s)
		require.NoError(t, s.Close(t.Context()))
		require.Zero(t, listed(t, witness, pid))
	}
	t.Run("idle", func(t *testing.T) {
		for range 20 {
			s, err := tmpl.Dial(t.Context(), nil)
			require.NoError(t, err)
			closed(t, s)
		}
	})
	t.Run("in a transaction", func(t *testing.T) {
		s := pgDial(t, tmpl)
		pgExec(t, s, "BEGIN")
		closed(t, s)
	})
	t.Run("rows open", func(t *testing.T) {
		s := pgDial(t, tmpl)
		_, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), "SELECT generate_series(1, 100000000), repeat('x', 1000)", nil)
		require.NoError(t, err)
		closed(t, s)
	})
	t.Run("after a cancelled statement", func(t *testing.T) {
		// The context ends sooner and later: a server ignores the request to
		// cancel a statement that has not begun.
		for i := range randomtest.Rounds(20, 200) {
			s, err := tmpl.Dial(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, s.Ping(t.Context()))
			before, _ := s.Sent()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20+1)*200*time.Microsecond)
			require.Error(t, pgTry(ctx, s, "SELECT pg_sleep(60)"))
			cancel()
			if sent, _ := s.Sent(); sent > before {
				require.Equal(t, dialects.TxLost, s.TxStatus())
				require.Equal(t, dialects.Dead, s.Peek())
			}
			closed(t, s)
		}
	})
}

func TestPostgresPeekSeesTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	d, tmpl := pgTemplate(t, account.URL())
	wrapped, err := d.Wrap(pgConnector(t, account))
	require.NoError(t, err)
	for name, from := range map[string]dialects.Template{"dialled": tmpl, "wrapped": wrapped} {
		t.Run(name, func(t *testing.T) {
			s := pgDial(t, from)
			require.Equal(t, dialects.Alive, s.Peek())

			// A notification waits to be read: that harms nobody.
			pgExec(t, s, "LISTEN a")
			pgExec(t, pgDial(t, tmpl), "NOTIFY a")
			require.Equal(t, dialects.Alive, s.Peek())

			_, err := witness.Exec("SELECT pg_terminate_backend($1, 5000)", pgPID(s))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return s.Peek() == dialects.Dead }, slowMachine, time.Millisecond)

			err = s.Ping(t.Context())
			require.Equal(t, dialects.TxLost, s.TxStatus())
			require.Equal(t, dialects.ServerLeaving, d.Diagnose(err), "%v", err)
		})
	}
}

func TestPostgresDialErrorsTellTheReasonAndNoSecret(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	d, _ := pgTemplate(t, account.URL())
	safe := func(t *testing.T, err error, password string) {
		t.Helper()
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			require.NotContains(t, fmt.Sprintf(verb, err), password)
		}
		var connectErr *pgconn.ConnectError
		require.False(t, errors.As(err, &connectErr), "it carries the configuration")
	}
	t.Run("wrong password", func(t *testing.T) {
		wrong := account
		wrong.Password = "another-secret"
		_, tmpl := pgTemplate(t, wrong.URL())
		_, err := tmpl.Dial(t.Context(), nil)
		require.Equal(t, dialects.AuthFailed, d.Diagnose(err), "%v", err)
		safe(t, err, wrong.Password)

		// The credential takes the place of the DSN's.
		s, err := tmpl.Dial(t.Context(), &dialects.Credential{User: account.User, Password: account.Password})
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		_, err = tmpl.Dial(t.Context(), nil)
		require.Equal(t, dialects.AuthFailed, d.Diagnose(err), "the template has kept its own")
	})
	missing := account
	missing.Database = "missing"
	for want, dsn := range map[string]string{
		"SQLSTATE 3D000": missing.URL(),
		"127.0.0.1:1":    account.Via("127.0.0.1:1").URL(),
		"unheard_of":     account.URL("unheard_of=1"),
	} {
		_, tmpl := pgTemplate(t, dsn)
		_, err := tmpl.Dial(t.Context(), nil)
		require.ErrorContains(t, err, want)
		safe(t, err, account.Password)
	}
	t.Run("wrapped", func(t *testing.T) {
		wrong := account
		wrong.Password = "another-secret"
		tmpl, err := d.Wrap(pgConnector(t, wrong))
		require.NoError(t, err)
		_, err = tmpl.Dial(t.Context(), nil)
		require.Equal(t, dialects.AuthFailed, d.Diagnose(err), "%v", err)
		safe(t, err, wrong.Password)
	})
}

func TestPostgresStaleStatementsAreKnownByTheirErrors(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	d, tmpl := pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	pgExec(t, s, "CREATE TABLE changing (a int)")
	stmt, err := s.Conn().(driver.ConnPrepareContext).PrepareContext(t.Context(), "SELECT * FROM changing")
	require.NoError(t, err)
	query := func() error {
		rows, err := stmt.(driver.StmtQueryContext).QueryContext(t.Context(), nil)
		if err == nil {
			err = rows.Close()
		}
		return err
	}
	require.NoError(t, query())
	pgExec(t, pgDial(t, tmpl), "ALTER TABLE changing ADD b int")
	err = query()
	require.Equal(t, dialects.StaleStatement, d.Diagnose(err), "%v", err)

	pgExec(t, s, "DEALLOCATE ALL")
	err = query()
	require.Equal(t, dialects.StaleStatement, d.Diagnose(err), "%v", err)
}

func TestPostgresOverTLSPeeksWithCareAndClosesToTheEnd(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly()).NewAccount(t)
	witness := account.Witness(t)
	_, tmpl := pgTemplate(t, account.URL())
	for _, way := range []string{"idle", "killed", "cancelled"} {
		t.Run(way, func(t *testing.T) {
			s := pgDial(t, tmpl)
			pid := pgPID(s)
			require.Equal(t, true, pgValue(t, s, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"))
			require.NotEqual(t, dialects.Dead, s.Peek())
			switch way {
			case "killed":
				_, err := witness.Exec("SELECT pg_terminate_backend($1, 5000)", pid)
				require.NoError(t, err)
				require.Eventually(t, func() bool { return s.Peek() != dialects.Alive }, slowMachine, time.Millisecond)
				require.Error(t, s.Ping(t.Context()))
			case "cancelled":
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				require.Error(t, pgTry(ctx, s, "SELECT pg_sleep(60)"))
			}
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, listed(t, witness, pid))
		})
	}
}

func pgConnector(t testing.TB, account testbed.Account) driver.Connector {
	t.Helper()
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	return stdlib.GetConnector(*config)
}

func TestPostgresWrapRefusesAPoolAndKnowsNoCredential(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	d, _ := pgTemplate(t, account.URL())

	config, err := pgxpool.ParseConfig(account.URL())
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	_, err = d.Wrap(stdlib.GetPoolConnector(pool))
	require.ErrorContains(t, err, "two pools fight")

	tmpl, err := d.Wrap(pgConnector(t, account))
	require.NoError(t, err)
	require.True(t, tmpl.Traits().StatusKnown)
	require.False(t, tmpl.TakesCredential())
	s := pgDial(t, tmpl)
	pgExec(t, s, "BEGIN")
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()))
	_, counted := s.Sent()
	require.False(t, counted)
	require.NoError(t, s.Close(t.Context()))
}

func BenchmarkPostgresClean(b *testing.B) {
	account := testbed.Shared(b, testbed.Postgres).NewAccount(b)
	_, tmpl := pgTemplate(b, account.URL())
	s := pgDial(b, tmpl)
	for way, run := range map[string]func() error{
		"clean": func() error { _, err := s.Clean(b.Context(), dialects.Stateful); return err },
		"ping":  func() error { return s.Ping(b.Context()) },
		"redial": func() error {
			s, err := tmpl.Dial(b.Context(), nil)
			if err == nil {
				err = s.Close(b.Context())
			}
			return err
		},
	} {
		b.Run("way="+way, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, run())
			}
		})
	}
}

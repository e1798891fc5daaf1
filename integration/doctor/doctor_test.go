// Package doctor runs the command "pooldriver doctor" on real servers.
package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) {
	code := testbed.Run(m)
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

var folder string // of the command

// build builds the command once.
var build = sync.OnceValues(func() (program string, err error) {
	if folder, err = os.MkdirTemp("", "doctor"); err != nil {
		return "", err
	}
	program = filepath.Join(folder, "pooldriver")
	c := exec.Command("go", "build", "-o", program, ".")
	c.Dir = "../../cmd/pooldriver"
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// finding is a line of the report.
type finding struct{ Level, Check, Found, Follows, Type string }

// curve is the measured one.
type curve struct {
	Advice, Statements int
	LeftOut            int `json:"left_out"`
	Points             []point
}

type point struct {
	Size, Errors int
	Rate         float64
}

type report struct {
	Target   string
	Findings []finding
	Load     curve
	status   int
}

// find returns the finding of a check.
func (r *report) find(t *testing.T, check string) finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f finding) bool { return f.Check == check })
	require.GreaterOrEqual(t, i, 0, "no finding %s in %+v", check, r.Findings)
	return r.Findings[i]
}

func (r *report) has(check string) bool {
	return slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Check == check })
}

// slowLogin is said when a login took a second, as one does now and then on a busy machine. No test is about it.
const slowLogin = "statements wait for it whenever the pool grows"

// examine runs the command, with its DSN in the environment, in both forms. No form may show a secret.
func examine(t *testing.T, dsn string, secret string, args ...string) *report {
	t.Helper()
	var text, out string
	var status, again int
	for range 20 {
		text, status = run(t, dsn, args...)
		require.NotContains(t, text, secret)
		out, again = run(t, dsn, append(args, "--json")...)
		require.NotContains(t, out, secret)
		if !strings.Contains(text+out, slowLogin) {
			break
		}
	}
	require.Equal(t, status, again, "%s%s", text, out)
	r := &report{status: status}
	require.NoError(t, json.Unmarshal([]byte(out), r), out)
	for _, f := range r.Findings {
		require.Contains(t, text, fmt.Sprintf("%-4s  %s: ", f.Level, f.Check))
	}
	t.Log("\n" + text)
	return r
}

func run(t *testing.T, dsn string, args ...string) (said string, status int) {
	t.Helper()
	out, complaint, status := execute(t, dsn, args...)
	require.Empty(t, complaint)
	return out, status
}

func execute(t *testing.T, dsn string, args ...string) (said, complaint string, status int) {
	t.Helper()
	program, err := build()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program, append([]string{"doctor"}, args...)...)
	c.Env = append(os.Environ(), "POOLDRIVER_DSN="+dsn)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String(), stderr.String(), exit.ExitCode()
	}
	require.NoError(t, err)
	return stdout.String(), stderr.String(), 0
}

func TestPostgresIsComparedWithWhatTheReplicasNeed(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithMaxConnections(30)) // and 8 for superusers
	a := server.NewAccount(t)
	r := examine(t, a.URL("pool_max_conns=10", "application_name=shop"), a.Password, "--replicas", "2")
	require.Zero(t, r.status)
	require.Equal(t, "ok", r.find(t, "login").Level)
	require.Regexp(t, `^PostgreSQL \d+`, r.find(t, "server").Found)
	require.Equal(t, "ok", r.find(t, "max_connections").Level)
	require.Contains(t, r.find(t, "max_connections").Found, "max_connections of the server is 38, 8 are reserved")
	require.False(t, r.has("rolconnlimit"))
	require.False(t, r.has("pooler"))

	r = examine(t, a.URL("pool_max_conns=10", "application_name=shop"), a.Password, "--replicas", "2", "--surge", "75%")
	require.Equal(t, 2, r.status)
	f := r.find(t, "max_connections")
	require.Equal(t, "bad", f.Level)
	require.Contains(t, f.Found, "pool_max_conns=10 × (2 replicas + 2 of a rollout) = 40")
	require.Contains(t, f.Follows, "except during a rollout")
	require.Equal(t, "pool_max_conns=7", f.Type, "30 for four processes, less the administrator's")
}

func TestPostgresShowsTheLimitsOfRoleAndDatabaseAndWhoHasConnections(t *testing.T) {
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	a.LimitConnections(t, 9)
	witness := a.Witness(t)
	_, err := witness.ExecContext(t.Context(), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT 8", a.Database))
	require.NoError(t, err)
	other := a.OpenBare(t, "application_name=report")
	tx, err := other.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)

	r := examine(t, a.URL("pool_max_conns=9", "application_name=shop"), a.Password)
	require.Equal(t, 2, r.status)
	role := r.find(t, "rolconnlimit")
	require.Equal(t, "bad", role.Level)
	require.Contains(t, role.Found, "is 9, other programs have 1 now: 8 for this program")
	require.Equal(t, "pool_max_conns=8", role.Type)
	database := r.find(t, "datconnlimit")
	require.Equal(t, "bad", database.Level)
	require.Contains(t, database.Found, "is 8, other programs have 2 now: 6 for this program", "the witness, too")
	require.Equal(t, "pool_max_conns=6", database.Type)
	require.Contains(t, r.find(t, "sessions").Found, a.User+"@"+a.Database+" report 1, 1 idle in a transaction")
	require.True(t, r.has("busy"))
}

func TestPostgresEndsIdleSessionsBeforeThePoolDoes(t *testing.T) {
	t.Parallel()
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, err := a.Witness(t).ExecContext(t.Context(), fmt.Sprintf("ALTER ROLE %s SET idle_session_timeout = '10min'", a.User))
	require.NoError(t, err)
	r := examine(t, a.URL(), a.Password)
	require.Zero(t, r.status, "a warning")
	f := r.find(t, "idle_session_timeout")
	require.Equal(t, "warn", f.Level)
	require.Equal(t, "pool_max_conn_idle_time=5m0s", f.Type)

	r = examine(t, a.URL(f.Type), a.Password, "--strict")
	require.Equal(t, "ok", r.find(t, "idle_session_timeout").Level, "what was to be typed helps")
}

func TestMySQLsLimitsAreThoseOfServerAndAccount(t *testing.T) {
	t.Parallel()
	for _, engine := range []testbed.Engine{testbed.MariaDB, testbed.OracleMySQL} {
		t.Run(map[testbed.Engine]string{testbed.MariaDB: "MariaDB", testbed.OracleMySQL: "MySQL"}[engine], func(t *testing.T) {
			if engine == testbed.OracleMySQL && !testbed.HasMySQL() {
				t.Skip("MySQL's image could not be had")
			}
			a := testbed.Start(t, engine, testbed.WithMaxConnections(40), testbed.WithArguments("--wait-timeout=600")).NewAccount(t)
			r := examine(t, a.URL("pool_max_conns=10"), a.Password, "--replicas=3")
			require.Zero(t, r.status)
			require.Equal(t, "ok", r.find(t, "max_connections").Level)
			require.False(t, r.has("max_user_connections"))
			require.Equal(t, "pool_max_conn_idle_time=5m0s", r.find(t, "wait_timeout").Type)

			a.LimitConnections(t, 12)
			r = examine(t, a.URL("pool_max_conns=10", "pool_max_conn_idle_time=5m"), a.Password, "--replicas=3")
			require.Equal(t, 2, r.status)
			require.Equal(t, "ok", r.find(t, "max_connections").Level)
			f := r.find(t, "max_user_connections")
			require.Equal(t, "bad", f.Level)
			require.Equal(t, "pool_max_conns=4", f.Type)
			require.Equal(t, "ok", r.find(t, "wait_timeout").Level)

			r = examine(t, a.URL("pool_max_conns=20"), a.Password, "--replicas=3")
			require.Equal(t, "bad", r.find(t, "max_connections").Level)
		})
	}
}

func TestPgBouncerIsSeenAndItsSettingsFollow(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	a := server.NewAccount(t)
	p := testbed.StartPgBouncer(t, a, "max_prepared_statements=0", "stats_users="+a.User, "client_idle_timeout=600", "max_client_conn=50")
	r := examine(t, a.Via(p.Addr).URL("pool_max_conns=20"), a.Password, "--replicas=3")
	require.Equal(t, 2, r.status)
	require.Contains(t, r.find(t, "pooler").Found, "PgBouncer is between")
	require.Contains(t, r.find(t, "pooler").Found, "transaction mode")
	require.Equal(t, "pool_reset=off", r.find(t, "pool_reset").Type)
	require.Equal(t, "bad", r.find(t, "prepared").Level)
	require.Equal(t, "bad", r.find(t, "max_client_conn").Level)
	require.Equal(t, "pool_max_conns=16", r.find(t, "max_client_conn").Type)
	require.Equal(t, "warn", r.find(t, "client_idle_timeout").Level)
	require.False(t, r.has("max_connections"), "it bounds PgBouncer")

	r = examine(t, a.Via(p.Addr).URL("pool_max_conns=16", "pool_reset=off", "default_query_exec_mode=exec", "pool_max_conn_idle_time=5m"), a.Password, "--replicas=3", "--strict")
	require.Zero(t, r.status)

	p = testbed.StartPgBouncer(t, a, "max_prepared_statements=200", "pool_mode=session")
	r = examine(t, a.Via(p.Addr).URL("pool_max_conns=2"), a.Password)
	require.Zero(t, r.status)
	require.NotContains(t, r.find(t, "pooler").Found, "transaction mode")
	require.True(t, r.has("pooler_limits"), "the user may not ask PgBouncer")
}

func TestWhoeverCannotLogInLearnsWhy(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		a := testbed.Shared(t, engine).NewAccount(t)
		wrong := a
		wrong.Password = "hunter2-" + a.Password
		r := examine(t, wrong.URL(), a.Password)
		require.Equal(t, 2, r.status)
		require.Contains(t, r.find(t, "login").Follows, "refuses the user or the password")

		r = examine(t, a.Via("127.0.0.1:1").URL(), a.Password)
		require.Equal(t, 2, r.status)
		require.Equal(t, "nc -vz 127.0.0.1 1", r.find(t, "login").Type)

		r = examine(t, a.Via("no-such-host.invalid:5432").URL(), a.Password)
		require.Equal(t, 2, r.status)
		require.Equal(t, "getent hosts no-such-host.invalid", r.find(t, "login").Type)

		a.LimitConnections(t, 1)
		db := a.OpenBare(t)
		require.NoError(t, db.PingContext(t.Context()))
		r = examine(t, a.URL(), a.Password)
		require.Equal(t, 2, r.status)
		require.Contains(t, r.find(t, "login").Follows, "is full for this user")
	}
}

func TestSQLiteGetsItsOwnLinesAndNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	r := examine(t, "sqlite:"+file, "hunter2")
	require.Equal(t, 2, r.status)
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r = examine(t, "sqlite:"+file+"?_pragma=key('hunter2')", "hunter2")
	require.Zero(t, r.status)
	require.Equal(t, "_pragma=journal_mode(WAL)", r.find(t, "journal_mode").Type)
	require.Equal(t, "ok", r.find(t, "busy_timeout").Level)
	require.False(t, r.has("max_connections"))
	r = examine(t, "sqlite:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(0)", "hunter2")
	require.Equal(t, "ok", r.find(t, "journal_mode").Level)
	require.Equal(t, "warn", r.find(t, "busy_timeout").Level)
	r = examine(t, "sqlite:"+filepath.Dir(file), "hunter2")
	require.Equal(t, 2, r.status)
	require.Contains(t, r.find(t, "login").Found, "it is a directory")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, content, "doctor has written nothing")
}

// TestReplicasThatDoNotServeAreFound: one that is dead, and one that is the primary itself.
func TestReplicasThatDoNotServeAreFound(t *testing.T) {
	t.Parallel()
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for _, host := range []string{"127.0.0.1:1", a.Addr} {
		r := examine(t, a.URL("pool_replicas="+host), a.Password)
		require.Equal(t, "bad", r.find(t, "replica").Level)
		require.Contains(t, r.find(t, "replica").Found, host)
		t.Log(r.find(t, "replica").Found)
	}
}

// TestAnAccountThatMayWriteOnAReplicaIsFound: its privileges pass read_only, or the host is no standby at all.
func TestAnAccountThatMayWriteOnAReplicaIsFound(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			set := testbed.StartReplicaSet(t, engine)
			a := set.NewAccount(t)
			replica := a.Via(set.Replicas[0].Addr)
			r := examine(t, a.URL("pool_replicas="+replica.Addr), a.Password)
			require.Equal(t, "ok", r.find(t, "replica").Level)
			require.False(t, r.has("replica_writes"))

			r = examine(t, a.URL("pool_replicas="+replica.Addr+","+a.Addr), a.Password)
			require.Equal(t, 2, r.status)
			require.Equal(t, "warn", r.find(t, "replica_writes").Level)
			require.Equal(t, "the account may write on "+a.Addr, r.find(t, "replica_writes").Found)

			if engine == testbed.Postgres {
				return
			}
			admin, err := set.Primary.Admin()
			require.NoError(t, err)
			_, err = admin.ExecContext(t.Context(), "GRANT /*M! READ_ONLY ADMIN *//*!80000 CONNECTION_ADMIN */ ON *.* TO '"+a.User+"'@'%'")
			require.NoError(t, err)
			set.CatchUp(t)
			r = examine(t, a.URL("pool_replicas="+replica.Addr), a.Password)
			require.Equal(t, "ok", r.find(t, "replica").Level)
			require.Equal(t, "the account may write on "+replica.Addr, r.find(t, "replica_writes").Found)
		})
	}
}

// TestTheBusyRatioIsThatOfTheServersStatistics: twenty sessions of four seconds are more than a minute, from which on the shares are
// told. A login that is slow because many come at once counts as idle.
func TestTheBusyRatioIsThatOfTheServersStatistics(t *testing.T) {
	t.Parallel()
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := a.OpenBare(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := db.ExecContext(t.Context(), "SELECT pg_sleep(4)")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool { // the statistics come when a session ends
		r := examine(t, a.URL(), a.Password)
		return strings.Contains(r.find(t, "busy").Follows, "are used")
	}, time.Minute, 100*time.Millisecond)
}

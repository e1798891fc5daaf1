package integration

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/sandbox"
)

// sandboxAccount is a user who may make databases, and a way to see what there is.
type sandboxAccount struct {
	testbed.Account
	dsn  string
	temp string // TMPDIR
	// list returns the names of all databases or files of the sandbox.
	list func(t *testing.T) []string
	// admin is a handle to the DSN's own database.
	admin *sql.DB
}

// eachSandbox runs the test on each engine and on SQLite.
func eachSandbox(t *testing.T, test func(t *testing.T, account sandboxAccount)) {
	t.Helper()
	testbed.Each(t, func(t *testing.T, account testbed.Account) { test(t, sandboxOnServer(t, account)) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sandboxOnSQLite(t))
	})
}

func sandboxOnServer(t *testing.T, account testbed.Account) sandboxAccount {
	t.Helper()
	admin, err := account.Server.Admin()
	require.NoError(t, err)
	s := sandboxAccount{Account: account, dsn: account.URL(), admin: account.OpenBare(t), temp: t.TempDir()}
	if account.Server.Engine == testbed.Postgres {
		_, err := admin.Exec("ALTER ROLE " + account.User + " CREATEDB")
		require.NoError(t, err)
		s.list = func(t *testing.T) []string {
			return texts(t, admin, `SELECT datname FROM pg_database WHERE datname LIKE 'sandbox\_%' AND pg_get_userbyid(datdba) = $1`, account.User)
		}
	} else {
		_, err := admin.Exec("GRANT ALL ON `sandbox\\_%`.* TO " + account.User)
		require.NoError(t, err)
		s.list = func(t *testing.T) []string {
			return texts(t, admin, "SELECT schema_name FROM information_schema.schemata WHERE LOCATE(?, schema_name) = 1", realmOf(account))
		}
	}
	createTable(t, s)
	t.Cleanup(func() { s.removeAll(t, admin) })
	return s
}

func sandboxOnSQLite(t *testing.T) sandboxAccount {
	t.Helper()
	temp := t.TempDir()
	s := sandboxAccount{dsn: "sqlite:" + filepath.Join(temp, "shop.db") + "?_pragma=busy_timeout(60000)", temp: temp}
	s.list = func(t *testing.T) (all []string) {
		for _, pattern := range []string{"*.db", "kept/*.db", "run-*/*.db"} {
			found, err := filepath.Glob(filepath.Join(temp, "pooldriver-sandbox-*", "*", pattern))
			require.NoError(t, err)
			all = append(all, found...)
		}
		return all
	}
	s.admin = sql.OpenDB(pooldriver.New(s.dsn))
	t.Cleanup(func() { _ = s.admin.Close() })
	createTable(t, s)
	return s
}

func createTable(t *testing.T, s sandboxAccount) {
	t.Helper()
	_, err := s.admin.Exec("CREATE TABLE " + childMigrations + " (n INTEGER)")
	require.NoError(t, err)
}

// migrations is how often the migrations have run.
func (s sandboxAccount) migrations(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.admin.QueryRow("SELECT count(*) FROM "+childMigrations).Scan(&n))
	return n
}

func (s sandboxAccount) child(how string, tests int, arguments ...string) child {
	return child{account: s, how: how, tests: tests, arguments: arguments}
}

// realmOf is how the names of an account's sandbox begin.
func realmOf(a testbed.Account) string {
	sum := sha256.Sum256([]byte("mysql database\x00" + a.User + "@%\x00" + a.Database))
	return "sandbox_" + hex.EncodeToString(sum[:])[:6] + "_"
}

// removeAll waits until the sandbox of this process is idle, and removes what it has made.
func (s sandboxAccount) removeAll(t *testing.T, admin *sql.DB) {
	t.Helper()
	_ = s.admin.Close()
	require.Eventually(t, func() bool { return s.sessions(t, admin) == 0 }, 20*time.Second, 20*time.Millisecond, "the account's sessions end")
	for _, name := range s.list(t) {
		_, err := admin.Exec("DROP DATABASE " + name)
		require.NoError(t, err)
	}
}

func (s sandboxAccount) sessions(t *testing.T, admin *sql.DB) (n int) {
	t.Helper()
	text := "SELECT count(*) FROM pg_stat_activity WHERE usename = '" + s.User + "'"
	if s.Server.Engine != testbed.Postgres {
		text = "SELECT count(*) FROM performance_schema.threads WHERE processlist_user = '" + s.User + "'"
	}
	require.NoError(t, admin.QueryRow(text).Scan(&n))
	return n
}

func texts(t *testing.T, db *sql.DB, query string, args ...any) (all []string) {
	t.Helper()
	rows, err := db.Query(query, args...)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		all = append(all, text)
	}
	require.NoError(t, rows.Err())
	return all
}

func TestSandboxDatabaseFromManyProcesses(t *testing.T) {
	t.Parallel()
	processes, tests := randomtest.Rounds(4, 8), randomtest.Rounds(4, 100)
	eachSandbox(t, func(t *testing.T, account sandboxAccount) {
		var all sync.WaitGroup
		for range processes {
			all.Go(func() {
				output, passed := account.child("", tests).run(t)
				if !passed || len(places(output)) != tests {
					t.Errorf("a process has failed: %s", output)
				}
				left := account.list(t)
				for _, name := range places(output) {
					if contains(left, name) {
						t.Errorf("%s is left", name)
					}
				}
			})
		}
		all.Wait()
		require.Len(t, account.list(t), 1, "the template")
		require.Equal(t, 1, account.migrations(t), "the migrations run once")
	})
}

func contains(all []string, text string) bool {
	for _, one := range all {
		if one == text {
			return true
		}
	}
	return false
}

func TestSandboxDatabaseOfAKilledProcessIsRemoved(t *testing.T) {
	t.Parallel()
	eachSandbox(t, func(t *testing.T, account sandboxAccount) {
		// In the migrations: the next process runs them again, and does not take half of them.
		kill(t, account.child(childMigrates, 1), 1)
		output, passed := account.child("", 1).run(t)
		require.True(t, passed, output)

		// In the tests.
		const tests = 3
		left := kill(t, account.child(childHangs, tests), tests)
		for _, name := range left {
			require.Contains(t, account.list(t), name)
		}
		// A process that lives keeps its own.
		living := start(t, account.child(childHangs, 2), 2)
		for _, name := range left {
			require.NotContains(t, account.list(t), name, "the next process has removed it")
		}
		output, passed = account.child("", 1).run(t)
		require.True(t, passed, output)
		for _, name := range living.places {
			require.Contains(t, account.list(t), name, "a living process has lost its database")
		}
		living.kill(t)
	})
}

// running is a child process whose tests wait.
type running struct {
	kill   func(t *testing.T)
	places []string
}

// start runs a process until it has said that it has so many places.
func start(t *testing.T, c child, count int) running {
	t.Helper()
	cmd := c.command(context.Background())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r := running{}
	ended := false
	r.kill = func(t *testing.T) {
		if !ended {
			ended = true
			require.NoError(t, cmd.Process.Kill()) // SIGKILL
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() { r.kill(t) })
	lines := bufio.NewScanner(out)
	var output strings.Builder
	for len(r.places) < count && lines.Scan() {
		fmt.Fprintln(&output, lines.Text())
		r.places = append(r.places, places(lines.Text())...)
	}
	require.Len(t, r.places, count, output.String())
	return r
}

// kill kills a process that has so many places, and returns their names.
func kill(t *testing.T, c child, count int) []string {
	t.Helper()
	r := start(t, c, count)
	r.kill(t)
	return r.places
}

func TestSandboxDatabaseReportsABrokenMigrationOnce(t *testing.T) {
	t.Parallel()
	eachSandbox(t, func(t *testing.T, account sandboxAccount) {
		const tests = 10
		output, passed := account.child(childBroken, tests).run(t)
		require.False(t, passed)
		require.Equal(t, 1, strings.Count(output, "there_is_no_such_column"), output)
		require.Equal(t, tests-1, strings.Count(output, "the migrations have failed before: see the error of TestInAProcessOfTheSandbox/test"), output)
		require.Equal(t, 1, account.migrations(t))
		require.Empty(t, account.list(t), "nothing half made is left")
		requireNoSecret(t, account, output)
	})
}

func requireNoSecret(t *testing.T, account sandboxAccount, output string) {
	t.Helper()
	if account.Password != "" {
		require.NotContains(t, output, account.Password)
	}
}

func TestSandboxDatabaseOfAFailedTestIsKept(t *testing.T) {
	t.Parallel()
	eachSandbox(t, func(t *testing.T, account sandboxAccount) {
		output, passed := account.child(childFails, 2).run(t)
		require.False(t, passed)
		for _, name := range places(output) {
			require.NotContains(t, account.list(t), name, "nobody has asked for it")
		}
		output, passed = account.child(childFails, 2, "-sandbox.keep").run(t)
		require.False(t, passed)
		requireNoSecret(t, account, output)
		var kept []string
		for line := range strings.Lines(output) {
			if _, after, found := strings.Cut(line, "sandbox: "); found && strings.Contains(line, " is kept: ") {
				name, _, _ := strings.Cut(after, " is kept: ")
				kept = append(kept, name)
			}
		}
		require.Len(t, kept, 2, output)
		output, passed = account.child("", 1).run(t)
		require.True(t, passed, output)
		for _, name := range kept {
			require.Contains(t, account.list(t), name)
		}
	})
}

func TestSandboxDatabaseWithAnOpenTransactionIsRemoved(t *testing.T) {
	t.Parallel()
	eachSandbox(t, func(t *testing.T, account sandboxAccount) {
		begun := time.Now()
		output, passed := account.child("", 2).run(t)
		require.True(t, passed, output)
		usual := time.Since(begun)
		begun = time.Now()
		output, passed = account.child(childLeaves, 2).run(t)
		require.True(t, passed, output)
		require.Less(t, time.Since(begun), 20*time.Second+2*usual)
		for _, name := range places(output) {
			require.NotContains(t, account.list(t), name)
		}
	})
}

// TestSandboxDatabaseIsRemovedThoughTheUserMayNotEndASession: autovacuum may be at work there.
func TestSandboxDatabaseIsRemovedThoughTheUserMayNotEndASession(t *testing.T) {
	t.Parallel()
	account := sandboxOnServer(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	other := account.Account
	t.Run("its test", func(its *testing.T) {
		place := account.place(its, sandbox.Migration{Run: func(context.Context, *sql.DB) error { return nil }})
		other.Database = place.Name
		administrator := other.Witness(t) // goes on when its test has ended
		require.NoError(its, administrator.PingContext(its.Context()))
		its.Cleanup(func() { time.AfterFunc(time.Second, func() { _ = administrator.Close() }) })
	})
	require.NotContains(t, account.list(t), other.Database)
}

func (s sandboxAccount) place(t *testing.T, m sandbox.Migration) *sandbox.Place {
	t.Helper()
	return sandbox.Database(t, s.dsn, m)
}

func TestSandboxDatabaseIsACopyOfTheTemplate(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, a testbed.Account) {
		account := sandboxOnServer(t, a)
		statements := []string{
			"CREATE TABLE b_parent (id INTEGER PRIMARY KEY, price INTEGER, twice INTEGER GENERATED ALWAYS AS (price * 2) STORED)",
			"CREATE TABLE a_child (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, CONSTRAINT known FOREIGN KEY (parent) REFERENCES b_parent (id))",
			"INSERT INTO b_parent (id, price) VALUES (1, 10)",
			"INSERT INTO a_child VALUES (1, 1)",
		}
		for _, more := range []string{"", "CREATE VIEW prices AS SELECT price FROM b_parent"} {
			if more != "" {
				statements = append(statements, more)
			}
			m := sandbox.Migration{Version: more, Run: func(ctx context.Context, db *sql.DB) error {
				for _, text := range statements {
					if _, err := db.ExecContext(ctx, text); err != nil {
						return fmt.Errorf("%s: %w", text, err)
					}
				}
				return nil
			}}
			t.Run("view="+more, func(t *testing.T) {
				p := account.place(t, m)
				var twice int
				require.NoError(t, p.DB.QueryRow("SELECT twice FROM b_parent").Scan(&twice))
				require.Equal(t, 20, twice)
				_, err := p.DB.Exec("INSERT INTO a_child VALUES (2, 7)")
				require.ErrorContains(t, err, "known", "a foreign key to the copy's own table")
				_, err = p.DB.Exec("INSERT INTO b_parent (id, price) VALUES (7, 1)")
				require.NoError(t, err)
				_, err = p.DB.Exec("INSERT INTO a_child VALUES (2, 7)")
				require.NoError(t, err)
				if more != "" {
					require.NoError(t, p.DB.QueryRow("SELECT sum(price) FROM prices").Scan(&twice))
					require.Equal(t, 11, twice)
				}
			})
		}
	})
}

func TestSandboxDatabaseSaysWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := sandboxAccount{Account: account, dsn: account.URL(), admin: account.OpenBare(t), temp: t.TempDir()}
		createTable(t, s)
		output, passed := s.child("", 1).run(t)
		require.False(t, passed)
		require.Regexp(t, "CREATEDB|GRANT ALL ON `sandbox", output)
		requireNoSecret(t, s, output)
		require.NoError(t, s.admin.Close())
	})
}

func TestSandboxDatabaseSurvivesTheLossOfItsSession(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, a testbed.Account) {
		account := sandboxOnServer(t, a)
		m := sandbox.Migration{Version: "1", Run: func(context.Context, *sql.DB) error { return nil }}
		idle, busy := account.place(t, m), account.place(t, m)
		admin, err := account.Server.Admin()
		require.NoError(t, err)
		for _, id := range account.killable(t, admin) {
			_, _ = admin.Exec("KILL " + id) // it may have ended by itself
		}
		require.NoError(t, busy.DB.Ping())
		output, passed := account.child("", 1).run(t)
		require.True(t, passed, output)
		for _, place := range []*sandbox.Place{idle, busy} {
			require.Contains(t, account.list(t), place.Name, "another process has removed it")
			require.NoError(t, place.DB.Ping())
		}
	})
}

// killable ends the account's sessions on PostgreSQL, and returns their numbers on MySQL.
func (s sandboxAccount) killable(t *testing.T, admin *sql.DB) []string {
	t.Helper()
	if s.Server.Engine == testbed.Postgres {
		texts(t, admin, "SELECT pg_terminate_backend(pid, 5000)::text FROM pg_stat_activity WHERE usename = $1", s.User)
		return nil
	}
	return texts(t, admin, "SELECT processlist_id FROM performance_schema.threads WHERE processlist_user = ?", s.User)
}

func TestSandboxOnPostgresRemovesWhatNobodyKeeps(t *testing.T) {
	t.Parallel()
	account := sandboxOnServer(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	output, passed := account.child("", 1).run(t)
	require.True(t, passed, output)
	migrated := account.migrations(t)

	// A clone without a note, of a process that is gone, something of the user's own, and a template whose time is over.
	clone := places(output)[0]
	template := clone[:strings.LastIndex(clone, "_")]
	own := template + "_of_the_user_himself"
	for _, name := range []string{clone, own} {
		_, err := account.admin.Exec("CREATE DATABASE " + name)
		require.NoError(t, err)
	}
	_, err := account.admin.Exec("COMMENT ON DATABASE " + template + " IS 'sandbox until 1'")
	require.NoError(t, err)
	output, passed = account.child("", 1).run(t)
	require.True(t, passed, output)
	require.Greater(t, account.migrations(t), migrated, "there is a new template")
	require.ElementsMatch(t, []string{template, own}, account.list(t))
}

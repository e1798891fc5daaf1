package doctor

import (
	"database/sql"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// under runs the command under load.
func under(t *testing.T, a testbed.Account, args ...string) (r *report) {
	t.Helper()
	out, _ := run(t, a.URL("pool_max_conns=6"), append(args, "--load", "--json")...)
	require.NotContains(t, out, a.Password)
	r = new(report)
	require.NoError(t, json.Unmarshal([]byte(out), r), out)
	return r
}

// TestTheAdviceHoldsInASecondRun: it gets 90 % of the best of that run. What a machine makes of statements
// that need its processors is left to the long form.
func TestTheAdviceHoldsInASecondRun(t *testing.T) {
	const cpuPostgres, cpuMariaDB = "SELECT sum(g) FROM generate_series(1, 3000) AS g", "SELECT count(*) FROM seq_1_to_3000"
	type program struct {
		name        string
		server      testbed.Engine
		lasts       time.Duration
		most        int
		least, wide int // the advice lies between them
		statements  []string
	}
	programs := []program{
		{"each connection helps", testbed.Postgres, 5 * time.Second, 4, 4, 4, []string{"SELECT pg_sleep(0.01)"}},
		{"one lock", testbed.Postgres, 5 * time.Second, 4, 1, 2, []string{"SELECT pg_advisory_xact_lock(1), pg_sleep(0.05)"}},
	}
	if os.Getenv("POOLDRIVER_LONG") != "" {
		programs = append(programs,
			program{"four locks", testbed.Postgres, time.Minute, 16, 4, 16, []string{"SELECT pg_advisory_xact_lock(1 + (random()*3)::int), pg_sleep(0.001)"}},
			program{"processors", testbed.Postgres, time.Minute, 16, 1, 16, []string{cpuPostgres}},
			program{"round trips", testbed.Postgres, time.Minute, 16, 1, 16, []string{"SELECT 1", "SELECT 2"}},
			program{"a mix", testbed.Postgres, time.Minute, 16, 1, 16, []string{cpuPostgres, "SELECT 1", "SELECT pg_sleep(0.002)"}},
			program{"MariaDB", testbed.MariaDB, time.Minute, 16, 1, 16, []string{cpuMariaDB}},
		)
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			account := testbed.Shared(t, p.server).NewAccount(t)
			args := []string{"--for", p.lasts.String(), "--max", strconv.Itoa(p.most)}
			for _, s := range p.statements {
				args = append(args, "--query", s)
			}
			first := under(t, account, args...)
			begun := time.Now()
			second := under(t, account, args...)
			require.Less(t, time.Since(begun), p.lasts+25*time.Second)
			best, advised := 0.0, 0.0
			for _, point := range second.Load.Points {
				require.Zero(t, point.Errors)
				if best = max(best, point.Rate); point.Size == first.Load.Advice {
					advised = point.Rate
				}
			}
			t.Logf("advice %d, %.3f of the second run's best (advice there: %d)\n%+v\n%+v", first.Load.Advice, advised/best, second.Load.Advice, first.Load.Points, second.Load.Points)
			if p.most == 16 && (first.find(t, "load").Type == "--for 4m0s" || second.find(t, "load").Type == "--for 4m0s") {
				t.Skip("the machine does too much else: doctor says so itself")
			}
			least, wide := 0.9, p.wide
			if p.most < 16 { // a short look on a machine that runs other tests
				least, wide = 0.7, p.wide+1
			}
			require.GreaterOrEqual(t, advised/best, least)
			require.GreaterOrEqual(t, first.Load.Advice, p.least)
			require.LessOrEqual(t, first.Load.Advice, wide)
		})
	}
}

// recorded runs the program whose statements are recorded.
func recorded(t *testing.T, a testbed.Account, insert, query string, parameters ...string) {
	t.Helper()
	db := sql.OpenDB(pooldriver.New(a.URL(parameters...)))
	defer func() { _ = db.Close() }()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id int primary key, name varchar(20))")
	require.NoError(t, err)
	for i := range 3 {
		_, err := db.ExecContext(t.Context(), insert, i, fmt.Sprintf("it's %d", i))
		require.NoError(t, err)
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), query, i, "it's").Scan(&n))
	}
}

// TestALogThatTheServerHasRecordedIsTheMix: what writes is left out, and nothing is written.
func TestALogThatTheServerHasRecordedIsTheMix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engine        testbed.Engine
		arguments     []string
		insert, query string
	}{
		"PostgreSQL": {
			testbed.Postgres, []string{"-c", "log_statement=all", "-c", "logging_collector=on", "-c", "log_directory=/tmp", "-c", "log_filename=recorded.log"},
			"INSERT INTO orders VALUES ($1, $2)", "SELECT count(*) FROM orders WHERE id <> $1 AND name LIKE $2 || '%'",
		},
		"MariaDB": {
			testbed.MariaDB, []string{"--general-log=ON", "--general-log-file=/tmp/recorded.log"},
			"INSERT INTO orders VALUES (?, ?)", "SELECT count(*)\nFROM orders WHERE id <> ? AND name LIKE concat(?, '%')",
		},
		"MySQL": {
			testbed.OracleMySQL, []string{"--general-log=ON", "--general-log-file=/tmp/recorded.log"},
			"INSERT INTO orders VALUES (?, ?)", "SELECT count(*)\nFROM orders WHERE id <> ? AND name LIKE concat(?, '%')",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.engine == testbed.OracleMySQL && !testbed.HasMySQL() {
				t.Skip("MySQL's image could not be had")
			}
			a := testbed.Start(t, c.engine, testbed.WithArguments(c.arguments...)).NewAccount(t)
			witness := a.Witness(t)
			recorded(t, a, c.insert, c.query)
			file := filepath.Join(t.TempDir(), "recorded.log")
			require.NoError(t, os.WriteFile(file, a.Server.ReadFile(t, "/tmp/recorded.log"), 0o600))
			picture := filepath.Join(t.TempDir(), "curve.svg")
			r := under(t, a, "--statements", file, "--for", "2s", "--max", "2", "--svg", picture)
			require.GreaterOrEqual(t, r.Load.Statements, 3, "the queries, and what the testbed has asked")
			require.GreaterOrEqual(t, r.Load.LeftOut, 4, "the table and its rows")
			for _, p := range r.Load.Points {
				require.Zero(t, p.Errors)
			}
			require.Equal(t, "warn", r.find(t, "mix").Level)
			var n int
			require.NoError(t, witness.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&n))
			require.Equal(t, 3, n)
			svg, err := os.ReadFile(picture)
			require.NoError(t, err)
			require.NoError(t, xml.Unmarshal(svg, new(struct{})))
		})
	}
}

// TestALoadThatMayNotBeIsRefused: with a status that tells it from a finding.
func TestALoadThatMayNotBeIsRefused(t *testing.T) {
	t.Parallel()
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	a.LimitConnections(t, 5)
	for want, args := range map[string][]string{
		"needs statements":                        {"--load"},
		"may not write: ":                         {"--load", "--query", "CREATE TABLE t (a int)"},
		"can spare 5 connections now, fewer":      {"--load", "--query", "SELECT 1", "--max", "6"},
		"0s is too short":                         {"--load", "--query", "SELECT 1", "--for", "0s"},
		"cannot execute nextval() in a read-only": {"--load", "--query", "SELECT nextval('s')"},
	} {
		_, err := a.Witness(t).ExecContext(t.Context(), "CREATE SEQUENCE IF NOT EXISTS s; GRANT ALL ON s TO public")
		require.NoError(t, err)
		said, status := complains(t, a.URL(), args...)
		require.Equal(t, 1, status, said)
		require.Contains(t, said, want)
		require.NotContains(t, said, a.Password)
	}
	r := under(t, a, "--query", "SELECT 1", "--for", "1s")
	require.Len(t, r.Load.Points, 2, "half of what can be spared")
}

package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/failover/bouncerclient/report"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// bounced is one of our processes behind a PgBouncer.
type bounced struct {
	parameters []string // of its DSN
	prepares   bool     // it uses prepared statements of database/sql
}

// serverPool is how many connections PgBouncer may have to the server, and
// clientPool how many each process may have to PgBouncer.
const serverPool, clientPool = 6, 8

func TestFourProcessesShareAPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	client := buildClient(t)
	for _, c := range []struct {
		name      string
		settings  []string
		processes [4]bounced
	}{
		{
			// Fewer statements than the processes have texts.
			name: "prepared statements on", settings: []string{"max_prepared_statements=20"},
			processes: [4]bounced{
				{prepares: true},
				{prepares: true, parameters: []string{"pool_lazy_begin=true"}},
				{prepares: true},
				{parameters: []string{"default_query_exec_mode=exec", "pool_lazy_begin=true"}},
			},
		},
		{
			name: "prepared statements off", settings: []string{"max_prepared_statements=0"},
			processes: [4]bounced{
				{parameters: []string{"default_query_exec_mode=exec"}},
				{parameters: []string{"default_query_exec_mode=exec", "pool_lazy_begin=true"}},
				{parameters: []string{"default_query_exec_mode=simple_protocol", "pool_lazy_begin=true"}},
				{parameters: []string{"default_query_exec_mode=cache_describe"}},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := randomtest.Seed(t)
			account := server.NewAccount(t)
			witness := account.Witness(t)
			create(t, account)
			bouncer := testbed.StartPgBouncer(t, account, append(c.settings, "default_pool_size="+strconv.Itoa(serverPool))...)
			watch := account.Watch(t)

			transactions := randomtest.Rounds(500, 2500) // of each process: 10,000 in all
			var all sync.WaitGroup
			var reports [4]report.Report
			var errs [4]error
			began := time.Now()
			for i, p := range c.processes {
				all.Go(func() {
					reports[i], errs[i] = p.run(t.Context(), client, account.Via(bouncer.Addr), i, transactions, seed)
				})
			}
			all.Wait()
			took := time.Since(began)
			peak := watch.Stop()

			var total report.Report
			for i, r := range reports {
				require.NoError(t, errs[i])
				require.Zero(t, r.Errors, "process %d", i)
				require.Zero(t, r.Foreign, "process %d", i)
				require.Equal(t, transactions, r.Committed, "process %d", i)
				require.LessOrEqual(t, r.Opened, uint64(r.Cancelled+2*clientPool), "only what is cancelled may cost a connection")
				total.Add(r)
			}
			state, err := ledger.Read(t.Context(), witness)
			require.NoError(t, err)
			t.Logf("%d transactions in %v, %d rolled back, %d statements cancelled; server: %d transfers, at most %d connections; PgBouncer: %v",
				total.Committed, took.Round(time.Millisecond), total.RolledBack, total.Cancelled, len(state.Transfers), peak.Backends,
				statistics(t, bouncer, account))
			require.Len(t, state.Transfers, 4*transactions)
			require.Empty(t, state.Half)
			require.Zero(t, state.Wrong)
			require.Zero(t, state.Sum)
			require.Positive(t, total.RolledBack)
			require.Positive(t, total.Cancelled)
			require.LessOrEqual(t, peak.Backends, serverPool)
			require.Greater(t, peak.Backends, 1, "nothing was shared")
			require.Greater(t, peak.Samples, 100)
			open, err := account.OpenTransactions(t.Context())
			require.NoError(t, err)
			require.Zero(t, open)
			require.Eventually(t, func() bool {
				var asleep int
				err := witness.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'").Scan(&asleep)
				return err == nil && asleep == 0
			}, 10*time.Second, 10*time.Millisecond, "statements that were cancelled run on")
		})
	}
}

func buildClient(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bouncerclient")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "./bouncerclient").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return file
}

func (b bounced) run(ctx context.Context, program string, account testbed.Account, number, transactions int, seed uint64) (report.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	name, zone := fmt.Sprintf("process%d", number), []string{"Asia/Tokyo", "Europe/Lisbon", "America/Lima", "Africa/Cairo"}[number]
	command := exec.CommandContext(ctx, program, "-name="+name, "-zone="+zone, "-transactions="+strconv.Itoa(transactions),
		"-prepares="+strconv.FormatBool(b.prepares), "-seed="+strconv.FormatUint(seed+uint64(number), 10))
	command.Env = append(os.Environ(), "POOLDRIVER_DSN="+account.URL(append([]string{
		"pool_reset=off", "application_name=" + name, "timezone=" + zone, "pool_max_conns=" + strconv.Itoa(clientPool),
	}, b.parameters...)...))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return report.Report{}, fmt.Errorf("%s: %w: %s", name, err, stderr.Bytes())
	}
	var r report.Report
	return r, json.Unmarshal(output, &r)
}

// statistics are what PgBouncer itself has counted.
func statistics(t *testing.T, bouncer *testbed.PgBouncer, account testbed.Account) map[string]string {
	t.Helper()
	for _, line := range bouncer.Show(t, "STATS") {
		if line["database"] == account.Database {
			return map[string]string{"transactions": line["total_xact_count"], "statements": line["total_query_count"],
				"prepared by clients": line["total_client_parse_count"], "at the server": line["total_server_parse_count"]}
		}
	}
	return nil
}

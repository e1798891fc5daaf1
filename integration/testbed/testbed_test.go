package testbed_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// forgetful is set in a test process that starts a server and waits to be killed.
const forgetful = "POOLDRIVER_TESTBED_FORGETFUL"

func TestMain(m *testing.M) {
	if os.Getenv(forgetful) != "" {
		if _, err := testbed.New(context.Background(), testbed.Postgres); err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, "started")
		select {}
	}
	os.Exit(testbed.Run(m))
}

func TestAKilledTestProcessLeavesNoContainer(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), forgetful+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)

	containers := func() string {
		label := fmt.Sprintf("label=%s=%s/%d", testbed.OwnerLabel, host(t), child.Process.Pid)
		list, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter", label).Output()
		require.NoError(t, err)
		return string(list)
	}
	require.NotEmpty(t, containers())
	require.NoError(t, syscall.Kill(-child.Process.Pid, syscall.SIGKILL)) // the whole group, as a CI limit does
	_ = child.Wait()
	for end := time.Now().Add(time.Minute); containers() != ""; time.Sleep(100 * time.Millisecond) {
		require.Less(t, time.Now(), end, "the container is still there")
	}
}

func host(t *testing.T) string {
	name, err := os.Hostname()
	require.NoError(t, err)
	return name
}

func TestBackendsCountsEveryConnectionOfTheAccountAndNoOther(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		ctx := t.Context()
		watch := account.Watch(t)
		db := account.OpenBare(t)
		for range 3 {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
		}
		counted, exempt, err := account.Backends(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, counted)
		require.Zero(t, exempt)
		before := watch.Peak().Samples
		require.Eventually(t, func() bool { return watch.Peak().Samples > before+1 }, 10*time.Second, time.Millisecond)
		require.Equal(t, 3, watch.Stop().Backends)
	})
}

func TestWitnessesSeeTransactionsLocksAndKills(t *testing.T) {
	t.Parallel()
	lock := map[testbed.Engine]string{
		testbed.Postgres: "SELECT pg_advisory_lock(7)",
		testbed.MySQL:    "SELECT GET_LOCK(CONCAT(DATABASE(), '.', 7), 0)",
	}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		ctx := t.Context()
		db := account.OpenBare(t)
		_, err := db.ExecContext(ctx, "CREATE TABLE things (id integer)")
		require.NoError(t, err)

		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO things VALUES (1)")
		require.NoError(t, err)
		open, err := account.OpenTransactions(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, open)
		require.NoError(t, tx.Rollback())

		_, held, err := account.LockHolder(ctx, 7)
		require.NoError(t, err)
		require.False(t, held)
		_, err = db.ExecContext(ctx, lock[account.Server.Engine])
		require.NoError(t, err)
		_, held, err = account.LockHolder(ctx, 7)
		require.NoError(t, err)
		require.True(t, held)

		account.KillIdle(t, 1)
		require.Eventually(t, func() bool {
			counted, _, err := account.Backends(ctx)
			return err == nil && counted == 0
		}, 10*time.Second, 10*time.Millisecond)
	})
}

func TestLimitConnectionsMakesTheServerRefuse(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		account.LimitConnections(t, 1)
		db := account.OpenBare(t)
		first, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer first.Close()
		_, err = db.Conn(t.Context())
		require.Error(t, err)
	})
}

func TestServerKeepsItsDataAndItsPortOverRestartAndKill(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testbed.Start(t, engine, testbed.WithRestart())
			account := server.NewAccount(t)
			_, err := account.OpenBare(t).ExecContext(t.Context(), "CREATE TABLE kept (id integer)")
			require.NoError(t, err)
			server.Restart(t)
			_, err = account.OpenBare(t).ExecContext(t.Context(), "INSERT INTO kept VALUES (1)")
			require.NoError(t, err)
			server.Kill(t)
			server.Start(t)
			var n int
			require.NoError(t, account.OpenBare(t).QueryRowContext(t.Context(), "SELECT count(*) FROM kept").Scan(&n))
			require.Equal(t, 1, n)
		})
	}
}

func TestTLSOnlyServerPresentsTheCertificateItWasTold(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testbed.Start(t, engine, testbed.WithTLSOnly())
			account := server.NewAccount(t)
			require.NoError(t, account.OpenBare(t).PingContext(t.Context()))
			server.UseCertificate(t, testbed.Expired)
			require.ErrorContains(t, account.OpenBare(t).PingContext(t.Context()), "expired")
			server.UseCertificate(t, testbed.WrongHost)
			require.ErrorContains(t, account.OpenBare(t).PingContext(t.Context()), "127.0.0.1")
			server.UseCertificate(t, testbed.Good)
			require.NoError(t, account.OpenBare(t).PingContext(t.Context()))
		})
	}
}

package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// What a child process does is in its environment.
const (
	childDSN    = "SANDBOX_CHILD_DSN"
	childTests  = "SANDBOX_CHILD_TESTS"   // how many
	childHow    = "SANDBOX_CHILD_HOW"     // empty, or one of the constants below
	childPrefix = "the child's place is " // what it prints
)

const (
	childFails      = "fails"      // each test fails
	childBroken     = "broken"     // the migrations fail
	childHangs      = "hangs"      // each test waits to be killed
	childMigrates   = "migrates"   // the migrations wait to be killed
	childLeaves     = "leaves"     // each test leaves a transaction open
	childMigrations = "migrations" // the table that counts runs of the migrations
)

// child is another process that runs TestInAProcessOfTheSandbox, as "go test" of another package
// would be.
type child struct {
	account   sandboxAccount
	how       string
	tests     int
	arguments []string
}

func (c child) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-test.run=^TestInAProcessOfTheSandbox$", "-test.v", "-test.count=1", "-test.parallel=4"}, c.arguments...)...)
	cmd.Env = append(os.Environ(), childDSN+"="+c.account.dsn, childHow+"="+c.how, childTests+"="+strconv.Itoa(c.tests), "TMPDIR="+c.account.temp)
	return cmd
}

// run returns what the process has printed, and whether its tests have passed.
func (c child) run(t *testing.T) (output string, passed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := c.command(ctx).CombinedOutput()
	require.NoError(t, ctx.Err(), "the process hangs: %s", out)
	var exit *exec.ExitError
	require.True(t, err == nil || errors.As(err, &exit), "%v", err)
	return string(out), err == nil
}

// places are the places that the process has had, as it has printed.
func places(output string) (names []string) {
	for line := range strings.Lines(output) {
		if _, name, found := strings.Cut(line, childPrefix); found {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func TestInAProcessOfTheSandbox(t *testing.T) {
	dsn := os.Getenv(childDSN)
	if dsn == "" {
		t.Skip("other tests of this file run it in a process of its own")
	}
	tests, err := strconv.Atoi(os.Getenv(childTests))
	require.NoError(t, err)
	for range tests {
		t.Run("test", func(t *testing.T) {
			t.Parallel()
			p := sandbox.Database(t, dsn, childMigration(dsn, os.Getenv(childHow)))
			_, _ = fmt.Fprintln(os.Stdout, childPrefix+p.Name)
			inChild(t, p)
		})
	}
}

// childMigration makes a table with a row in it, and counts in the DSN's own database that it ran.
func childMigration(dsn, how string) sandbox.Migration {
	return sandbox.Migration{Version: how, Run: func(ctx context.Context, db *sql.DB) error {
		outside, err := pooldriver.Open(dsn)
		if err != nil {
			return err
		}
		defer outside.Close()
		if _, err := outside.ExecContext(ctx, "INSERT INTO "+childMigrations+" VALUES (1)"); err != nil {
			return err
		}
		if how == childMigrates {
			_, _ = fmt.Fprintln(os.Stdout, childPrefix+"not ready")
			time.Sleep(time.Hour)
		}
		if how == childBroken {
			_, err := db.ExecContext(ctx, "SELECT there_is_no_such_column")
			return err
		}
		_, err = db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name VARCHAR(20))")
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO orders VALUES (1, 'of the migration')")
		}
		return err
	}}
}

func inChild(t *testing.T, p *sandbox.Place) {
	ctx := context.Background()
	_, err := p.DB.ExecContext(ctx, "INSERT INTO orders VALUES (2, 'of the test')")
	require.NoError(t, err)
	var n int
	require.NoError(t, p.DB.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n))
	require.Equal(t, 2, n)
	switch os.Getenv(childHow) {
	case childFails:
		t.Error("it fails as it should")
	case childHangs:
		time.Sleep(time.Hour)
	case childLeaves:
		other := sql.OpenDB(pooldriver.New(p.DSN()))
		tx, err := other.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "UPDATE orders SET name = 'open'")
		require.NoError(t, err)
	}
}

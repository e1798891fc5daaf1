// Package sandboxes runs package sandbox against real servers.
package sandboxes

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.RunAtOnce(m, 16)) }

// quietly keeps what the pool logs out of a passing run's output.
func quietly(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// stage is a database for sandboxes, with a table.
type stage struct {
	connector *pooldriver.Connector
	witness   *sql.DB
	account   testbed.Account
}

// onServer makes a stage of an account on a server. When the test and its subtests have ended,
// nothing of them may be left there.
func onServer(t testing.TB, engine testbed.Engine, parameters ...string) stage {
	t.Helper()
	account := testbed.Shared(t, engine).NewAccount(t)
	s := stage{pooldriver.New(account.URL(parameters...), quietly), account.Witness(t), account}
	mustExec(t, s.witness, "CREATE TABLE ledger (id integer PRIMARY KEY, note varchar(50))")
	if engine == testbed.Postgres {
		mustExec(t, s.witness, "GRANT ALL ON ledger TO PUBLIC")
	}
	t.Cleanup(func() {
		require.Zero(t, count(t, s.witness, "SELECT count(*) FROM ledger"), "nothing of the tests is left")
		require.NoError(t, s.connector.Close())
	})
	return s
}

// slowly is a statement that does not end by itself.
func slowly(engine testbed.Engine) string {
	if engine == testbed.Postgres {
		return "SELECT pg_sleep(600)"
	}
	return "SELECT sleep(600)"
}

// untilItRuns is a context that ends when the server is at work on a statement that sleeps.
func (s stage) untilItRuns(t *testing.T) context.Context {
	t.Helper()
	return s.account.UntilItSleeps(t, s.witness)
}

type querier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func mustExec(t testing.TB, db querier, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), statement, args...)
	require.NoError(t, err)
}

func count(t testing.TB, db querier, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

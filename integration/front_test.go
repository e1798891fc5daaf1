package integration

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// front is a way to a database. The same cases run through the bare driver,
// under database/sql's own pool, and through pooldriver.
type front struct {
	name string
	// open returns an *sql.DB that opens at most max connections and closes it at
	// the end of the test.
	open func(t testing.TB, account testbed.Account, max int) *sql.DB
	// borrowers are ways to borrow that this front alone has.
	borrowers []borrower
}

var bare = front{name: "bare driver", open: func(t testing.TB, account testbed.Account, max int) *sql.DB {
	db := account.OpenBare(t)
	db.SetMaxOpenConns(max)
	db.SetMaxIdleConns(max)
	return db
}}

// quiet keeps what the pool logs out of a passing run's output.
func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// eachFront runs the test once per engine and front, side by side, each time with an
// account of its own on the shared servers.
func eachFront(t *testing.T, test func(t *testing.T, account testbed.Account, f front)) {
	t.Helper()
	for _, f := range fronts {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			testbed.Each(t, func(t *testing.T, account testbed.Account) { test(t, account, f) })
		})
	}
}

func mustExec(t testing.TB, db querier, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), statement, args...)
	require.NoError(t, err, statement)
}

package integration

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestErrorsOfStatementsAreCountedByTheClassThatTheServerGives: sent as a text, prepared, in a transaction, and at its end.
func TestErrorsOfStatementsAreCountedByTheClassThatTheServerGives(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		c := pooldriver.New(account.URL(), quiet)
		db := sql.OpenDB(c)
		t.Cleanup(func() { _ = db.Close() })
		fails := func(_ any, err error) { t.Helper(); require.Error(t, err) }
		_, err := db.Exec("CREATE TABLE one (id INT PRIMARY KEY)")
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO one VALUES (1)")
		require.NoError(t, err)
		require.Empty(t, c.Stats().StatementErrors)
		fails(db.Exec("INSERT INTO one VALUES (1)"))
		mark := map[testbed.Engine]string{testbed.Postgres: "$1", testbed.MySQL: "?"}[account.Server.Engine]
		fails(db.Exec("INSERT INTO one VALUES ("+mark+")", 1))
		want := map[string]uint64{"23": 2}
		require.Equal(t, want, c.Stats().StatementErrors)

		fails(db.Exec("SELEC 1"))
		fails(db.Query("SELECT nothing FROM nowhere WHERE id = "+mark, 1)) //nolint:rowserrcheck,sqlclosecheck // it fails
		want["42"] = 2
		require.Equal(t, want, c.Stats().StatementErrors)
		if account.Server.Engine != testbed.Postgres {
			return
		}
		_, err = db.Exec("CREATE TABLE late (id INT REFERENCES one DEFERRABLE INITIALLY DEFERRED)")
		require.NoError(t, err)
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO late VALUES (7)")
		require.NoError(t, err)
		require.Error(t, tx.Commit())
		require.Error(t, db.QueryRow("SELECT 1 / (n - 3) FROM generate_series(1, 5) n ORDER BY n").Scan(new(int)))
		want["23"], want["22"] = 3, 1
		require.Equal(t, want, c.Stats().StatementErrors)
	})
}

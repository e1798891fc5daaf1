package integration

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// wrapLibPQ is a pool over a driver that no dialect knows.
func wrapLibPQ(t *testing.T, account testbed.Account, max int) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	admin, err := account.Witness(t).Conn(t.Context())
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.ExecContext(t.Context(), "SET scram_iterations = 4096") // lib/pq refuses the testbed's 1
	require.NoError(t, err)
	_, err = admin.ExecContext(t.Context(), fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", account.User, account.Password))
	require.NoError(t, err)
	inner, err := pq.NewConnector(account.URL())
	require.NoError(t, err)
	c := pooldriver.Wrap(inner, quiet, func(c *pooldriver.Config) { c.MaxConns = max })
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db, c
}

// TestPostgresCopyOfADriverThatNoDialectKnows: lib/pq's COPY is a prepared statement that
// cannot be executed again once it has ended.
func TestPostgresCopyOfADriverThatNoDialectKnows(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db, _ := wrapLibPQ(t, account, 2)
	_, err := db.Exec("CREATE TABLE loaded (a integer)")
	require.NoError(t, err)
	load := func(tx *sql.Tx) {
		stmt, err := tx.Prepare(pq.CopyIn("loaded", "a"))
		require.NoError(t, err)
		for i := range 100 {
			_, err := stmt.Exec(i)
			require.NoError(t, err)
		}
		_, err = stmt.Exec()
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
	}
	for range 3 {
		tx, err := db.Begin()
		require.NoError(t, err)
		load(tx)
		load(tx)
		require.NoError(t, tx.Commit())
	}
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM loaded").Scan(&n))
	require.Equal(t, 600, n)
}

// TestPostgresAStatementOfADriverThatNoDialectKnowsLivesAsLongAsTheProgramsOwn: after another
// client's ALTER TABLE a new statement of the same text works, and the server has none left.
func TestPostgresAStatementOfADriverThatNoDialectKnowsLivesAsLongAsTheProgramsOwn(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db, c := wrapLibPQ(t, account, 1)
	witness := account.Witness(t)
	_, err := witness.Exec("CREATE TABLE changing (a integer); GRANT ALL ON changing TO PUBLIC")
	require.NoError(t, err)
	prepared := func() (n int) {
		require.NoError(t, db.QueryRow("SELECT count(*) FROM pg_prepared_statements").Scan(&n))
		return n
	}
	for i := range 3 {
		for range 2 {
			rows, err := db.Query("SELECT * FROM changing WHERE 1 = $1", 1)
			require.NoError(t, err)
			require.NoError(t, rows.Close())
		}
		stmt, err := db.Prepare("SELECT * FROM changing")
		require.NoError(t, err)
		for range 2 {
			rows, err := stmt.Query()
			require.NoError(t, err)
			require.NoError(t, rows.Close())
		}
		require.Equal(t, 1, prepared(), "it serves both executions")
		require.NoError(t, stmt.Close())
		require.Zero(t, prepared(), "closed with the next use of its connection")
		_, err = witness.Exec(fmt.Sprintf("ALTER TABLE changing ADD COLUMN b%d integer", i))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, c.Stats().Pool.Creates)
}

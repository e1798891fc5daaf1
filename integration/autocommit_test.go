package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// openings begin a transaction that no BeginTx knows of.
var openings = map[string]string{
	"BEGIN":              "COMMIT",
	"SET autocommit = 0": "COMMIT",
	"XA START 'x'":       "XA END 'x'",
}

// TestMySQLWhatOpensATransactionByHandIsOneInEveryRespect: with its connection all of it is
// lost, and nothing of it is executed again outside of it.
func TestMySQLWhatOpensATransactionByHandIsOneInEveryRespect(t *testing.T) {
	t.Parallel()
	s := serverStage(t, testbed.Shared(t, testbed.MySQL).NewAccount(t))
	p := s.open(t, 2)
	for opening, closing := range openings {
		t.Run(opening, func(t *testing.T) {
			ctx, end := pooldriver.WithTask(t.Context())
			p.mustExec(ctx, t, opening)
			p.mustExec(ctx, t, insertInto(1))
			s.kill(t, p.backend(ctx, t))
			_, err := p.ExecContext(ctx, insertInto(-1))
			require.Error(t, err, "the driver's, or ours")
			p.requireLost(ctx, t, statements)
			_, err = p.ExecContext(ctx, closing)
			require.ErrorIs(t, err, pooldriver.ErrTxLost)
			end()
			awaitEmpty(t, s)

			conn := take(t, t.Context(), p.DB)
			execOn(t, t.Context(), conn, opening)
			execOn(t, t.Context(), conn, insertInto(2))
			s.kill(t, int64(number(t, conn)))
			_, err = conn.ExecContext(t.Context(), insertInto(3))
			require.Error(t, err)
			_, err = conn.ExecContext(t.Context(), closing)
			require.Error(t, err)
			_ = conn.Close()
			awaitEmpty(t, s)

			p.mustExec(t.Context(), t, opening)
			p.requireAtRest(t)
			requireEmpty(t, s)
		})
	}
	p.requireAtRest(t)
}

// requireEmpty: nothing is stored, and nothing holds a lock on what is not.
func requireEmpty(t *testing.T, s stage) {
	t.Helper()
	require.Empty(t, s.stored(t))
	left, err := s.left(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// awaitEmpty is requireEmpty after a kill: the server ends the transaction of a session that is not in its list any more.
func awaitEmpty(t *testing.T, s stage) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := s.left(t.Context())
		return err == nil && len(left) == 0
	}, slowMachine, time.Millisecond)
	requireEmpty(t, s)
}

// TestMySQLRowsOfATransactionByHandStayWithIt while others wait for its connection: what it
// has stored is committed where it was written.
func TestMySQLRowsOfATransactionByHandStayWithIt(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	for _, f := range []front{wrapped, around} {
		db := f.open(t, account, 1)
		mustExec(t, db, "CREATE OR REPLACE VIEW two AS SELECT 1 AS a UNION SELECT 2")
		mustExec(t, db, "DROP TABLE IF EXISTS kept")
		mustExec(t, db, "CREATE TABLE kept (a INTEGER)")
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		execOn(t, t.Context(), conn, "SET autocommit = 0")
		execOn(t, t.Context(), conn, "INSERT INTO kept VALUES (1)")
		answer, err := readWhileOthersWait(t, db, conn)
		require.NoError(t, err)
		require.Equal(t, 2, answer)
		execOn(t, t.Context(), conn, "COMMIT")
		require.NoError(t, conn.Close())
		require.NoError(t, db.Ping())
		var n int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM kept").Scan(&n))
		require.Equal(t, 1, n, f.name)
	}
}

// readWhileOthersWait reads two rows on conn, slowly.
func readWhileOthersWait(t *testing.T, db *sql.DB, conn *sql.Conn) (last int, err error) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SELECT a FROM two")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		waiting, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		require.Error(t, db.PingContext(waiting), "others wait in vain")
		cancel()
		require.NoError(t, rows.Scan(&last))
	}
	return last, rows.Err()
}

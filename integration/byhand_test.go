package integration

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestATransactionBegunByHandOnADBLeavesNothing: the server is asked that nothing is open when the
// connection has come back. A *sql.Conn may do the same.
func TestATransactionBegunByHandOnADBLeavesNothing(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, s stage) {
		p := s.open(t, 2)
		texts := []string{"BEGIN", s.say("START TRANSACTION READ WRITE", "START TRANSACTION", "BEGIN IMMEDIATE")}
		if s.name == "mysql" {
			texts = append(texts, "CALL begin_here()")
			mustExec(t, s.witness, "CREATE PROCEDURE "+s.account.Database+".begin_here() BEGIN START TRANSACTION; INSERT INTO ledger VALUES (7); END")
		}
		for _, text := range texts {
			before := p.connector.Stats().Rollbacks
			p.mustExec(t.Context(), t, text)
			p.requireAtRest(t)
			require.Equal(t, before+1, p.connector.Stats().Rollbacks, text)
			if s.name != "sqlite" {
				left, err := s.left(t.Context())
				require.NoError(t, err)
				require.Empty(t, left, text)
			}
			p.mustExec(t.Context(), t, insertInto(1))
			mustExec(t, s.witness, "DELETE FROM ledger WHERE id = 1") // nothing holds a lock
			require.Empty(t, s.stored(t))
		}
		conn := take(t, t.Context(), p.DB)
		execOn(t, t.Context(), conn, "BEGIN")
		execOn(t, t.Context(), conn, insertInto(2))
		execOn(t, t.Context(), conn, "COMMIT")
		require.NoError(t, conn.Close())
		require.Equal(t, []int{2}, s.stored(t))
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(3))
		require.NoError(t, err, "a statement of a *sql.Tx leaves its transaction open")
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	})
}

func TestATransactionBegunByHandEndsWithItsStatementThroughEitherFront(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		for _, f := range []front{wrapped, around} {
			db := f.open(t, account, 2)
			mustExec(t, db, "BEGIN")
			require.Eventually(t, func() bool {
				open, err := account.Transactions(t.Context())
				require.NoError(t, err)
				return len(open) == 0
			}, 10*time.Second, time.Millisecond, f.name)
		}
	})
}

package sandbox_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/sandbox"
	"github.com/pooldriver/pooldriver/tests/answers"
)

// transactionTexts end with an empty table.
var transactionTexts = []string{
	"COMMIT", "ROLLBACK", "BEGIN", "BEGIN", "INSERT INTO ledger VALUES (1, 'a')", "COMMIT",
	"BEGIN IMMEDIATE", "INSERT INTO ledger VALUES (2, 'a')", "BEGIN DEFERRED TRANSACTION", "END TRANSACTION", "COMMIT",
	"begin -- a comment", "DELETE FROM ledger", "ROLLBACK /* another */;", "BEGIN WORK", "ROLLBACK",
	"/* one */ BEGIN EXCLUSIVE", "DELETE FROM ledger WHERE id = 2", "COMMIT", "INSERT INTO ledger VALUES (2, 'a')", "DELETE FROM ledger",
}

// TestTransactionsByTextsAreAsInProduction on SQLite. On servers: integration/sandboxes.
func TestTransactionsByTextsAreAsInProduction(t *testing.T) {
	plain, c := global(t)
	inProduction := answers.To(t, plain, transactionTexts)
	t.Run("test", func(t *testing.T) {
		require.Equal(t, inProduction, answers.To(t, sandbox.DB(t, c), transactionTexts))
	})
}

func TestATransactionThatATextHasEndedIsAsInProduction(t *testing.T) {
	plain, c := global(t)
	end := func(t *testing.T, db *sql.DB, text string) error {
		tx, err := db.Begin()
		require.NoError(t, err)
		mustExec(t, tx, text)
		mustExec(t, tx, "INSERT INTO ledger VALUES (1, 'a')")
		mustExec(t, tx, "DELETE FROM ledger")
		if text == "COMMIT" {
			return tx.Commit()
		}
		return tx.Rollback()
	}
	for _, text := range []string{"COMMIT", "ROLLBACK"} {
		inProduction := end(t, plain, text)
		t.Run(text, func(t *testing.T) {
			require.EqualError(t, end(t, sandbox.DB(t, c), text), inProduction.Error())
		})
	}
}

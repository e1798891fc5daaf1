package sqlites

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// EndsItsTransaction reports whether a write was cut that had begun, and requires that its transaction is lost then.
func EndsItsTransaction(t *testing.T, on *sql.DB, bare bool, limit time.Duration, write func(context.Context, *sql.Tx) error) bool {
	t.Helper()
	tx, err := on.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("insert into kept values (1)")
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if write(soon, tx) == nil { // the interrupt came before SQLite had begun, and is lost
		require.NoError(t, tx.Rollback())
		return false
	}
	_, err = tx.Exec("insert into kept values (2)")
	if !bare && errors.Is(err, pooldriver.ErrTxLost) {
		require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
		return true
	}
	require.NoError(t, err)
	if !bare {
		require.NoError(t, tx.Rollback())
		return false
	}
	if tx.Commit() != nil {
		return true
	}
	_, err = on.Exec("delete from kept where a < 3")
	require.NoError(t, err)
	return false
}

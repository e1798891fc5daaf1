package pooldriver

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestRowsAreTakenBackOnlyWhenTheirQueryHasLetTheStatementGo is the race
// detector's: whoever takes rows back counts in the statement that they are read
// from. Nothing may order the two goroutines but what the pool does, so one of
// them waits by the clock.
func TestRowsAreTakenBackOnlyWhenTheirQueryHasLetTheStatementGo(t *testing.T) {
	_, db, c := openStub(t, dialects.Traits{Reprepares: true})
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	var other sync.WaitGroup
	var second error
	other.Go(func() {
		time.Sleep(50 * time.Millisecond)
		_, second = db.Exec("INSERT INTO t VALUES (2)")
	})
	rows, err := db.Query("SELECT a FROM t WHERE a = ?", 1)
	other.Wait()
	require.NoError(t, err)
	require.NoError(t, second)
	require.EqualValues(t, 1, c.Stats().Reclaims)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	require.NoError(t, rows.Close())
}

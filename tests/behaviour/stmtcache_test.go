package behaviour

import (
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// TestRowsAreTakenBackOnlyWhenTheirQueryHasLetTheStatementGo is the race
// detector's: whoever takes rows back counts in the statement that they are read
// from. Nothing may order the two goroutines but what the pool does, so one of
// them waits by the clock.
func TestRowsAreTakenBackOnlyWhenTheirQueryHasLetTheStatementGo(t *testing.T) {
	for pause := 50 * time.Millisecond; !tookBack(t, pause); pause *= 2 {
		require.Less(t, pause, patience)
	}
}

// tookBack reports false if the query came after the other statement.
func tookBack(t *testing.T, pause time.Duration) bool {
	t.Helper()
	_, db, c := openStub(t, dialects.Traits{Reprepares: true})
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	var other sync.WaitGroup
	var second error
	other.Go(func() {
		time.Sleep(pause)
		_, second = db.Exec("INSERT INTO t VALUES (2)")
	})
	rows, err := db.Query("SELECT a FROM t WHERE a = ?", 1)
	other.Wait()
	require.NoError(t, err)
	require.NoError(t, second)
	defer rows.Close()
	if c.Stats().Reclaims == 0 {
		return false
	}
	require.EqualValues(t, 1, c.Stats().Reclaims)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	return true
}

// counted is an argument that is converted by the program's code.
type counted struct{ n int64 }

func (c counted) Value() (driver.Value, error) { return c.n, nil }

// TestAStatementIsAskedForItsArgumentsBeforeItIsLetGo: the program's code runs
// without the lock, when a statement that is not kept is closed already.
func TestAStatementIsAskedForItsArgumentsBeforeItIsLetGo(t *testing.T) {
	_, db, _ := openStub(t, dialects.Traits{Reprepares: true})
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?)", counted{1})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (?)", counted{1}, counted{2})
	require.EqualError(t, err, "sql: expected 1 arguments, got 2")
}

package behaviour

import (
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/pool"
)

const leakWarning = "has been held for longer than"

// TestAHandleServesInBubblesAndOutsideAgain: a *sql.DB that a test's setup has opened and used
// serves in a bubble of testing/synctest that uses it alone, and outside again.
func TestAHandleServesInBubblesAndOutsideAgain(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=synchronous(off)", func(c *pooldriver.Config) {
		c.MaxConns, c.AcquireTimeout, c.LeakAfter = 2, 2*time.Second, 400*time.Millisecond
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	db := sql.OpenDB(c)
	mustExec(t, t.Context(), db, "CREATE TABLE t (a INTEGER)")
	step := func(t *testing.T) { useHandle(t, db, c, log) }
	for range 2 {
		// A step that fails leaves a transaction open, and a pool must not be used on both sides at once.
		require.True(t, t.Run("outside", step))
		for range 2 {
			synctest.Test(t, step)
		}
	}
	require.True(t, t.Run("outside", step))
	require.NoError(t, db.Close())
}

// inTime tries again what the machine, which stood still, has made too late for AcquireTimeout.
func inTime(do func() error) error {
	err := do()
	for try := 0; try < 10 && errors.Is(err, pool.ErrTimeout); try++ {
		err = do()
	}
	return err
}

func useHandle(t *testing.T, db *sql.DB, c *pooldriver.Connector, log *lockedBuffer) {
	told := log.lines(leakWarning)
	begun := time.Now()
	var one *sql.Tx
	require.NoError(t, inTime(func() (err error) { one, err = db.BeginTx(t.Context(), nil); return err }))
	mustExec(t, t.Context(), one, "INSERT INTO t VALUES (1)")
	two, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, inTime(func() error { return two.PingContext(t.Context()) }))

	_, err = db.ExecContext(t.Context(), "SELECT 1")
	var full *pool.AcquireError
	require.ErrorAs(t, err, &full)
	require.GreaterOrEqual(t, full.Waited, 300*time.Millisecond)
	require.Less(t, full.Waited, 10*time.Second, "a busy machine is late; a wrong clock says hours")
	holders := c.Holders()
	require.Len(t, holders, 2)
	if bubble.Name(begun) == "" { // in one, what is seen may begin a tick later, and a leak be told outside
		require.Regexp(t, `for (\d{3}ms|\d+(\.\d+)?s)`, err.Error(), "the holders' own times")
		require.WithinDuration(t, begun, holders[0].Since, time.Minute)
		require.Eventually(t, func() bool { return log.lines(leakWarning) >= told+2 }, patience, time.Millisecond, log.text())
	}

	waited := make(chan error)
	for range 4 {
		go func() {
			waited <- inTime(func() error { _, err := db.Exec("INSERT INTO t VALUES (2)"); return err })
		}()
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, two.Close())
	require.NoError(t, one.Rollback())
	for range 4 {
		require.NoError(t, <-waited)
	}

	task, end := pooldriver.NewTask(t.Context())
	rows, err := db.QueryContext(task, "SELECT a FROM t")
	require.NoError(t, err)
	for rows.Next() {
		var n int
		require.NoError(t, db.QueryRowContext(task, "SELECT count(*) FROM t").Scan(&n))
	}
	require.NoError(t, rows.Close())
	_, err = db.BeginTx(task, nil)
	require.NoError(t, err)
	end()
	require.Eventually(t, func() bool { return c.Stats().Pool.Active == 0 }, patience, time.Millisecond)
	require.Less(t, c.Stats().Pool.WaitMax, time.Minute)
}

// TestLooksFromOutsideLeaveABubbleAlone: what was begun outside looks at the pool on time, also when a
// bubble uses it meanwhile and somebody waits there. The bubble's wait ends at its own time.
func TestLooksFromOutsideLeaveABubbleAlone(t *testing.T) {
	t.Parallel()
	c := pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "test.db"), func(c *pooldriver.Config) {
		c.MaxConns, c.AcquireTimeout = 1, 2*time.Second
	})
	db := sql.OpenDB(c)
	mustExec(t, t.Context(), db, "CREATE TABLE t (a INTEGER)")
	var waits, seen atomic.Bool
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for !waits.Load() {
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			_, _ = c.Stats(), c.Holders()
		}
		seen.Store(true)
	}()
	synctest.Test(t, func(t *testing.T) {
		one, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		mustExec(t, t.Context(), one, "INSERT INTO t VALUES (1)")
		go func() { // its sleep ends when the other waits; while it spins, the bubble's time stands still
			time.Sleep(time.Second)
			waits.Store(true)
			for !seen.Load() {
				runtime.Gosched()
			}
		}()
		_, err = db.ExecContext(t.Context(), "SELECT 1")
		var full *pool.AcquireError
		require.ErrorAs(t, err, &full)
		require.Equal(t, 2*time.Second, full.Waited.Round(100*time.Millisecond))
		require.NoError(t, one.Rollback())
	})
	<-looked
	require.NoError(t, db.Close())
}

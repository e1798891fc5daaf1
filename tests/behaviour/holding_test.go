package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func everyStack(c *pooldriver.Config) { c.SampleStacks = 1 }

const secretInsert = "INSERT INTO t VALUES ('s3cr3t')"

// inBubble gives a test a database of two connections in a bubble. What is logged is in
// the buffer.
func inBubble(t *testing.T, test func(t *testing.T, db *sql.DB, c *pooldriver.Connector, log *lockedBuffer), options ...pooldriver.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, db, c, log := openGateway(t, append([]pooldriver.Option{func(c *pooldriver.Config) { c.MaxConns = 2 }, everyStack}, options...)...)
		mustExec(t, t.Context(), db, "CREATE TABLE t (a TEXT)")
		test(t, db, c, log)
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// lineIn is a call of that function in a file of these tests.
func lineIn(t *testing.T, function string, stack []pooldriver.Frame) {
	t.Helper()
	require.NotEmpty(t, stack)
	require.True(t, strings.HasSuffix(stack[0].Func, function), "the innermost call is %s", stack[0])
	require.True(t, strings.HasSuffix(stack[0].File, "holding_test.go"), stack[0].File)
	require.NotZero(t, stack[0].Line)
}

func beginLeaking(t *testing.T, ctx context.Context, db *sql.DB) *sql.Tx {
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	return tx
}

func insertSecret(t *testing.T, ctx context.Context, tx *sql.Tx) {
	_, err := tx.ExecContext(ctx, secretInsert)
	require.NoError(t, err)
}

func TestAnIdleTransactionIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, _ *lockedBuffer) {
		require.Empty(t, c.Holders())
		before := time.Now()
		ctx := pooldriver.Label(t.Context(), "GET /orders")
		tx := beginLeaking(t, ctx, db)
		insertSecret(t, t.Context(), tx)
		time.Sleep(time.Hour)
		all := c.Holders()
		require.Len(t, all, 1)
		h := all[0]
		require.WithinDuration(t, before, h.Since, 20*time.Millisecond)
		lineIn(t, "beginLeaking", h.TakenAt)
		lineIn(t, "insertSecret", h.StatementAt)
		require.InDelta(t, time.Hour, h.Idle, float64(20*time.Millisecond))
		require.InDelta(t, time.Hour, h.IdlePinned, float64(20*time.Millisecond))
		h.Since, h.Idle, h.IdlePinned, h.TakenAt, h.StatementAt = time.Time{}, 0, 0, nil, nil
		require.Equal(t, pooldriver.Holder{Conn: 1, Pin: pooldriver.PinTransaction, Statements: 2, Statement: "INSERT INTO t VALUES (?)", Label: "GET /orders"}, h)
		require.NoError(t, tx.Rollback())
		require.Empty(t, c.Holders())
	})
}

func TestAPinSaysWhyAConnectionIsHeld(t *testing.T) {
	for want, hold := range map[pooldriver.Pin]func(t *testing.T, db *sql.DB) (end func() error){
		pooldriver.PinConn: func(t *testing.T, db *sql.DB) func() error {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.PingContext(t.Context()))
			return conn.Close
		},
		pooldriver.PinRows: func(t *testing.T, db *sql.DB) func() error {
			rows, err := db.Query("SELECT a FROM t")
			require.NoError(t, err)
			return rows.Close
		},
		pooldriver.PinRawTransaction: func(t *testing.T, db *sql.DB) func() error {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			mustExec(t, t.Context(), conn, "BEGIN")
			return conn.Close
		},
		pooldriver.PinState: func(t *testing.T, db *sql.DB) func() error {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			mustExec(t, t.Context(), conn, "SET a = 1")
			return conn.Close
		},
		pooldriver.PinTransaction: func(t *testing.T, db *sql.DB) func() error {
			return beginLeaking(t, t.Context(), db).Rollback
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, _ *lockedBuffer) {
				end := hold(t, db)
				h := c.Holders()
				require.Len(t, h, 1)
				require.Equal(t, want, h[0].Pin)
				require.NoError(t, end())
				require.Empty(t, c.Holders())
			})
		})
	}
}

// TestWhoeverRunsIsSeenAlthoughItsLockIsHeld: a statement that hangs holds the lock of its
// session.
func TestWhoeverRunsIsSeenAlthoughItsLockIsHeld(t *testing.T) {
	server, db, c := openTasks(t, 1, everyStack)
	gate := held(server, "(7)")
	ctx, cancel := context.WithTimeout(pooldriver.Label(t.Context(), "job"), time.Minute)
	defer cancel()
	task, end := pooldriver.WithTask(ctx)
	defer end()
	running := make(chan error, 1)
	go func() { _, err := db.ExecContext(task, "INSERT INTO t VALUES (7)"); running <- err }()
	<-gate.Entered()
	h := c.Holders()
	require.Len(t, h, 1)
	require.True(t, h[0].Running)
	require.Zero(t, h[0].Idle)
	require.Equal(t, []any{pooldriver.PinStatement, "job", "INSERT INTO t VALUES (?)"}, []any{h[0].Pin, h[0].Label, h[0].Statement})
	require.Regexp(t, `^task \d+$`, h[0].Task)

	require.Empty(t, c.Waiters())
	queued := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(pooldriver.Label(ctx, "report"), "INSERT INTO t VALUES (8)")
		queued <- err
	}()
	waiting(t, c, 1)
	w := c.Waiters()
	require.Len(t, w, 1)
	require.WithinDuration(t, time.Now(), w[0].Since, 10*time.Second)
	require.WithinDuration(t, time.Now().Add(30*time.Second), w[0].Deadline, 10*time.Second, "pool_acquire_timeout comes before the context's end")
	require.Equal(t, []any{1, "report", "", []uint64(nil)}, []any{w[0].Position, w[0].Label, w[0].Task, w[0].Holds})

	tasks := c.Tasks()
	require.Len(t, tasks, 1)
	require.Equal(t, pooldriver.TaskState{Name: h[0].Task, Label: "job", Since: tasks[0].Since, Holds: []uint64{h[0].Conn}}, tasks[0])
	gate.Open()
	require.NoError(t, <-running)
	require.NoError(t, <-queued)
}

func TestATaskThatHoldsOneAndWaitsForAnotherIsSeen(t *testing.T) {
	_, db, c := openTasks(t, 1)
	implicit, end := task.WithImplicit(pooldriver.Label(t.Context(), "checkout"))
	tx, err := db.BeginTx(implicit, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(implicit)
	waits := make(chan error, 1)
	go func() { _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); waits <- err }()
	waiting(t, c, 1)
	w, tasks := c.Waiters(), c.Tasks()
	require.Len(t, w, 1)
	require.Equal(t, []any{"checkout", []uint64{1}}, []any{w[0].Label, w[0].Holds})
	require.Len(t, tasks, 1)
	require.Equal(t, []any{w[0].Task, 1, []uint64{1}}, []any{tasks[0].Name, tasks[0].Waiting, tasks[0].Holds})
	cancel()
	require.Error(t, <-waits)
	require.NoError(t, tx.Rollback())
	end()
	require.Empty(t, c.Tasks())
}

func TestTheLeakersCallSiteComesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, _ *lockedBuffer) {
		for range 5 {
			mustExec(t, t.Context(), db, secretInsert)
		}
		tx := beginLeaking(t, t.Context(), db)
		for range 2 {
			time.Sleep(time.Minute)
			sites := c.CallSites()
			lineIn(t, "beginLeaking", sites[0].Stack)
			require.EqualValues(t, 1, sites[0].Count)
			require.GreaterOrEqual(t, sites[0].IdlePinned, time.Minute, "it has not given back yet")
			require.GreaterOrEqual(t, sites[0].Held, sites[0].IdlePinned)
		}
		require.NoError(t, tx.Rollback())
		sites := c.CallSites()
		require.InDelta(t, 2*time.Minute, sites[0].IdlePinned, float64(time.Second))
		counts := uint64(0)
		for _, s := range sites[1:] {
			counts += s.Count
		}
		require.EqualValues(t, 6, counts, "5 inserts and CREATE TABLE")
	})
}

func TestALeakIsLoggedOnceWithItsStacks(t *testing.T) {
	const leak = "a connection has been held for longer than pool_leak_after"
	inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, log *lockedBuffer) {
		for range 100 { // none of these
			mustExec(t, t.Context(), db, secretInsert)
			time.Sleep(time.Second)
		}
		require.Zero(t, log.lines(leak))
		tx := beginLeaking(t, pooldriver.Label(t.Context(), "nightly"), db)
		insertSecret(t, t.Context(), tx)
		time.Sleep(9 * time.Second)
		require.Zero(t, log.lines(leak))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, log.lines(leak))
		time.Sleep(time.Minute)
		require.Equal(t, 1, log.lines(leak), "once")
		text := log.text()
		for _, want := range []string{"level=WARN", "held=10s", "pin=transaction", "label=nightly", `statement="INSERT INTO t VALUES (?)"`, "beginLeaking (holding_test.go:", "insertSecret (holding_test.go:"} {
			require.Contains(t, text, want)
		}
		require.NotContains(t, text, "s3cr3t")
		require.NoError(t, tx.Rollback())
		tx = beginLeaking(t, t.Context(), db)
		time.Sleep(time.Minute)
		require.Equal(t, 2, log.lines(leak), "another checkout")
		require.NoError(t, tx.Rollback())
	}, func(c *pooldriver.Config) { c.LeakAfter = 10 * time.Second })
}

func TestTheErrorOfATimeoutNamesTheHoldersAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, _ *lockedBuffer) {
		task, end := pooldriver.WithTask(pooldriver.Label(t.Context(), "POST /pay"))
		tx := beginLeaking(t, task, db)
		insertSecret(t, task, tx)
		other := beginLeaking(t, t.Context(), db)
		_, err := db.ExecContext(t.Context(), secretInsert)
		require.Regexp(t, `^pooldriver: no connection to generic fakedb.contextDriver: all pool_max_conns=2 connections are in use, .*\); held longest by `+
			`task \d+ of POST /pay at \S+\.beginLeaking \(holding_test.go:\d+\) \(transaction, for 30s, idle for 30s, last INSERT INTO t VALUES \(\?\)\), `+
			`a checkout at \S+\.beginLeaking \(holding_test.go:\d+\) \(transaction, for 30s, idle for 30s, last BEGIN\)$`, err.Error())
		require.NotContains(t, err.Error(), "s3cr3t")
		require.NoError(t, other.Rollback())
		require.NoError(t, tx.Rollback())
		end()
	})
}

func TestADeadlockNamesLabelsAndLastStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 1, deadlockAfter(50*time.Millisecond))
		task, end := pooldriver.WithTask(pooldriver.Label(t.Context(), "POST /pay"))
		defer end()
		tx, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(task, "INSERT INTO t VALUES (4711)")
		require.NoError(t, err)
		beside, endBeside := pooldriver.NewTask(task)
		defer endBeside()
		_, err = db.ExecContext(beside, "INSERT INTO t VALUES (4712)")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock)
		require.Regexp(t, `\(held by task \d+ of POST /pay \(transaction, for \d+ms, last INSERT INTO t VALUES \(\?\)\)\)$`, err.Error())
		require.NoError(t, tx.Rollback())
	})
}

func TestFiguresOfTheTimesOfConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, _ *lockedBuffer) {
		tx := beginLeaking(t, t.Context(), db)
		time.Sleep(time.Second)
		require.NoError(t, tx.Commit())
		one, two := beginLeaking(t, t.Context(), db), beginLeaking(t, t.Context(), db)
		waited := make(chan error, 1)
		go func() { waited <- db.PingContext(t.Context()) }()
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, db.PingContext(ctx))
		require.NoError(t, one.Rollback())
		require.NoError(t, two.Rollback())
		assert.NoError(t, <-waited)
		s := c.Stats()
		require.Equal(t, []int{2, 0, 0, 2}, []int{s.Pool.Max, s.Min, s.MinIdle, s.MaxIdle})
		require.EqualValues(t, 2, s.Connect.Count)
		require.EqualValues(t, 5, s.Hold.Count, "CREATE TABLE, three transactions and a ping")
		require.Equal(t, 7*time.Second, s.Hold.Sum)
		require.Equal(t, 7*time.Second, s.IdlePinned.Sum)
		require.EqualValues(t, 6, s.Wait.Count, "those, and one that got none")
		require.GreaterOrEqual(t, s.Wait.Sum, 4*time.Second)
		require.Less(t, s.Wait.Sum, 4100*time.Millisecond)
		bounds := pooldriver.HistogramBounds()
		require.Len(t, s.Wait.Buckets, len(bounds)+1)
		for i, n := range s.Hold.Buckets {
			if i < len(bounds) && bounds[i] == time.Second {
				require.EqualValues(t, 1, n)
			}
		}
	})
}

func TestClosedConnectionsAreCountedByReason(t *testing.T) {
	server, db, c := openTasks(t, 1)
	closed := func() map[pooldriver.CloseReason]uint64 { return c.Stats().Closed }
	require.NoError(t, db.Ping())
	c.Flush()
	require.Eventually(t, func() bool { return closed()[pooldriver.CloseFlushed] == 1 }, patience, time.Millisecond)
	require.NoError(t, db.Ping())
	server.KillAll()
	_ = db.Ping()
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool {
		n := uint64(0)
		for _, k := range closed() {
			n += k
		}
		return n == c.Stats().Pool.Creates
	}, patience, time.Millisecond, "every connection has a reason")
	require.EqualValues(t, c.Stats().Pool.Destroyed.Sum(), c.Stats().Pool.Creates)
}

func TestAConnectorThatIsUnusableHasNobody(t *testing.T) {
	c := pooldriver.New("nothing:")
	require.Empty(t, c.Holders())
	require.Empty(t, c.Waiters())
	require.Empty(t, c.CallSites())
	require.Empty(t, c.Tasks())
}

// TestAnOperationThatGoesOnIsCountedOnce: while the Valuer runs, the task's session is free.
func TestAnOperationThatGoesOnIsCountedOnce(t *testing.T) {
	_, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (?)", sql.NullString{String: "a", Valid: true})
	require.EqualValues(t, 2, c.Holders()[0].Statements)
	require.NoError(t, tx.Rollback())
}

// TestRowsWhoseConnectionWasTakenBackAreShownUntilTheyAreClosed: they hold no connection, and so
// are in no other list.
func TestRowsWhoseConnectionWasTakenBackAreShownUntilTheyAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.SampleStacks = 1 })
		rows, err := db.QueryContext(pooldriver.Label(t.Context(), "report"), "SELECT n FROM numbers LIMIT 5")
		require.NoError(t, err)
		require.Empty(t, c.BufferedRows())
		require.NoError(t, insertTwo(t.Context(), db)) // waits, and gets their connection
		require.Empty(t, c.Holders())
		left := c.BufferedRows()
		require.Len(t, left, 1)
		require.Equal(t, "report", left[0].Label)
		require.Equal(t, "SELECT n FROM numbers LIMIT ?", left[0].Statement)
		require.WithinDuration(t, time.Now(), left[0].Since, time.Second)
		require.Contains(t, left[0].TakenAt[0].Func, "TestRowsWhoseConnectionWasTakenBack")
		n := 0
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 5, n)
		require.Empty(t, c.BufferedRows())
	})
}

func TestATransactionThatBeginsOrEndsIsShownAsSuch(t *testing.T) {
	server, db, c := openTasks(t, 1)
	shows := func(call fakedb.Call, text string, do func()) {
		gate := server.Block(call)
		var done sync.WaitGroup
		done.Go(do)
		<-gate.Entered()
		require.Len(t, c.Holders(), 1)
		require.Equal(t, text, c.Holders()[0].Statement)
		require.True(t, c.Holders()[0].Running)
		gate.Open()
		done.Wait()
	}
	var tx *sql.Tx
	begin := func() {
		var err error
		tx, err = db.Begin()
		assert.NoError(t, err)
	}
	shows(fakedb.ConnBeginCtx, "BEGIN", begin)
	require.NoError(t, insertTwo(t.Context(), tx))
	shows(fakedb.TxCommit, "COMMIT", func() { assert.NoError(t, tx.Commit()) })
	begin()
	shows(fakedb.TxRollback, "ROLLBACK", func() { assert.NoError(t, tx.Rollback()) })
}

// TestALabelCanBeExemptFromTheLeakWarning: a listener holds its connection for as long as the
// program runs, and nothing is to be done about that.
func TestALabelCanBeExemptFromTheLeakWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		_, db, _ := openTasks(t, 2, logTo(log), func(c *pooldriver.Config) { c.LeakAfter, c.LeakExempt = time.Second, []string{"reports", "listener"} })
		for _, label := range []string{"listener", "GET /list"} {
			rows, err := db.QueryContext(pooldriver.Label(t.Context(), label), "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			defer rows.Close()
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, strings.Count(log.text(), "has been held for longer than pool_leak_after: close its rows"))
		require.Contains(t, log.text(), `label="GET /list"`)
		require.NotContains(t, log.text(), "label=listener")
	})
}

// TestDrainSaysAtOnceThatItWaitsForAFunctionOfRaw: that may wait for notifications for ever.
func TestDrainSaysAtOnceThatItWaitsForAFunctionOfRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		_, db, c := openTasks(t, 2, logTo(log))
		conn, err := db.Conn(pooldriver.Label(t.Context(), "listener"))
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(pooldriver.Label(t.Context(), "listener")))
		done := inRaw(t.Context(), conn, func(driver.Conn) error { return nil })
		drained := make(chan error)
		go func() { drained <- c.Drain(t.Context()) }()
		synctest.Wait()
		require.Contains(t, log.text(), "Drain waits for a connection that a function of Raw has: let the function of Raw return")
		require.Contains(t, log.text(), `holder="listener (`)
		require.NoError(t, done())
		require.NoError(t, conn.Close())
		require.NoError(t, <-drained)
	})
}

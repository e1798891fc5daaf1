package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// openAll opens rows by each of the queries and reads their first.
func openAll(t *testing.T, db *sql.DB, queries ...string) (all []*sql.Rows) {
	t.Helper()
	for _, q := range queries {
		rows, err := db.Query(q)
		require.NoError(t, err)
		t.Cleanup(func() { _ = rows.Close() })
		require.True(t, rows.Next())
		all = append(all, rows)
	}
	return all
}

// readOn reads numbers to their end, the first of which is n.
func readOn(t *testing.T, rows *sql.Rows, n, end int) {
	t.Helper()
	for ; rows.Next(); n++ {
		var got int
		require.NoError(t, rows.Scan(&got))
		require.Equal(t, n, got)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, end, n)
	require.NoError(t, rows.Close())
}

// peak watches how much is in memory.
func peak(c *pooldriver.Connector) (stop func() int64) {
	var most atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			most.Store(max(most.Load(), c.Stats().BufferedBytes))
			time.Sleep(100 * time.Microsecond)
		}
	})
	return func() int64 {
		done.Store(true)
		wg.Wait()
		return most.Load()
	}
}

const export = "SELECT n FROM numbers LIMIT 100000" // 2.4 MB

// At the defaults: eight exports of 20 MiB each, on a pool of eight.
func TestExportsAndOneWhoWaitsFillTheMemoryToItsBoundOnly(t *testing.T) {
	t.Parallel()
	const one, total, large = 16 << 20, 64 << 20, "SELECT a, b FROM large"
	const row = 256<<10 + 100
	_, db, c := openTasks(t, 8, func(c *pooldriver.Config) { c.AcquireTimeout = 30 * time.Minute })
	mustExec(t, t.Context(), db, "CREATE TABLE large (a INT, b BLOB)")
	for i := range 80 {
		_, err := db.Exec("INSERT INTO large VALUES (?, ?)", i, make([]byte, 256<<10))
		require.NoError(t, err)
	}
	exports := openAll(t, db, large, large, large, large, large, large, large, large)
	stop := peak(c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiter := make(chan error, 1)
	go func() { waiter <- insertTwo(ctx, db) }()
	// Until nothing is read any more. Rows whose reading takes over a second, as on a very slow machine, are read no further.
	last, still := int64(-1), 0
	require.Eventually(t, func() bool {
		before := last
		if last = c.Stats().BufferedBytes; last != before {
			still = 0
			return false
		}
		still++
		return last > one || last > 0 && still > 40
	}, 20*time.Minute, 500*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-waiter, context.Canceled, "none of them ends")
	held := stop()
	t.Logf("%d MiB were in memory", held>>20)
	require.LessOrEqual(t, held, int64(one+total))
	require.LessOrEqual(t, held, int64(total/2+8*row), "for those who wait, and a row of each reader")
	require.True(t, held > one || still > 40, "several were tried")
	require.Zero(t, c.Stats().Reclaims)
	for _, rows := range exports {
		n := 1
		for ; rows.Next(); n++ {
			var a int
			var b sql.RawBytes
			require.NoError(t, rows.Scan(&a, &b))
			require.Equal(t, n, a)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 80, n)
	}
	require.Zero(t, c.Stats().BufferedBytes)
	require.NoError(t, insertTwo(t.Context(), db))
	atRest(t, c)
}

func TestShortRowsAreFoundAmongExports(t *testing.T) {
	_, db, c := openTasks(t, 8)
	exports := openAll(t, db, export, export, export, export, export, export, export, "SELECT n FROM numbers LIMIT 200")
	stop := peak(c)
	soon(t, "the statement", func() { require.NoError(t, insertTwo(t.Context(), db)) })
	// A step of each, and on a slow machine, where a second reader begins before the first
	// has ended, a second step of twice the size.
	require.LessOrEqual(t, stop(), int64(10*(256<<10+100)), "a step of each")
	require.EqualValues(t, 1, c.Stats().Reclaims)
	readOn(t, exports[7], 1, 200)
	for _, rows := range exports {
		require.NoError(t, rows.Close())
	}
	require.Zero(t, c.Stats().BufferedBytes)
	atRest(t, c)
}

func TestWhatWasReadAheadOfRowsThatEndInsideRawIsGivenBack(t *testing.T) {
	for _, end := range []func(*sql.Rows){
		func(rows *sql.Rows) { require.NoError(t, rows.Close()) },
		func(rows *sql.Rows) { require.False(t, rows.Next()); require.ErrorContains(t, rows.Err(), saysLent) },
	} {
		_, db, c := openTasks(t, 1)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		rows, err := conn.QueryContext(t.Context(), export)
		require.NoError(t, err)
		defer rows.Close()
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() { waits <- insertTwo(ctx, db) }()
		require.Eventually(t, func() bool { return c.Stats().BufferedBytes > 0 }, 10*time.Second, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)
		require.NoError(t, pooldriver.Raw(t.Context(), conn, func(driver.Conn) error { end(rows); return nil }))
		require.Zero(t, c.Stats().BufferedBytes)
		require.NoError(t, conn.Close())
		atRest(t, c)
	}
}

func TestRowsThatTurnedOutTooLargeAreNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one = 100 << 10
		_, db, c := openTasks(t, 2, func(c *pooldriver.Config) { c.NestedBuffer = one })
		exports := openAll(t, db, export, export)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waited := make(chan error, 1)
		go func() { waited <- insertTwo(ctx, db) }()
		require.Eventually(t, func() bool { return c.Stats().BufferedBytes > 2*one }, patience, time.Millisecond)
		for range 4000 {
			require.True(t, exports[0].Next(), "what makes room in memory")
		}
		held := c.Stats().BufferedBytes
		require.ErrorIs(t, <-waited, context.DeadlineExceeded)
		require.Equal(t, held, c.Stats().BufferedBytes)
		readOn(t, exports[0], 4001, 100000)
		readOn(t, exports[1], 1, 100000)
		require.Zero(t, c.Stats().BufferedBytes)
		atRest(t, c)
	})
}

// A server that is slow to give the rows of one must not keep those of others from
// being read.
func TestRowsThatComeSlowlyDoNotHoldUpOthers(t *testing.T) {
	server, db, c := openTasks(t, 2)
	all := openAll(t, db, "SELECT n FROM numbers LIMIT 200", "SELECT n FROM numbers LIMIT 200")
	gate := server.Block(fakedb.RowsNext)
	soon(t, "the statement", func() { require.NoError(t, insertTwo(t.Context(), db)) })
	<-gate.Entered()
	gate.Open()
	for _, rows := range all {
		readOn(t, rows, 1, 200)
	}
	require.Zero(t, c.Stats().BufferedBytes)
	atRest(t, c)
}

func TestANestedStatementThatFindsNoRoomSaysWhichBoundItWas(t *testing.T) {
	_, db, c := openTasks(t, 2, func(c *pooldriver.Config) { c.NestedBuffer, c.NestedBufferTotal = 1000, 1500 })
	inTask := func() (ctx context.Context, rows *sql.Rows) {
		ctx, end := pooldriver.WithTask(t.Context())
		t.Cleanup(end)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		rows, err = db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 40") // 960 bytes
		require.NoError(t, err)
		return ctx, rows
	}
	ctx, first := inTask()
	require.NoError(t, insertTwo(ctx, db))
	require.EqualValues(t, 960, c.Stats().BufferedBytes)
	other, second := inTask()
	err := insertTwo(other, db)
	require.ErrorIs(t, err, pooldriver.ErrNestedBuffer)
	require.ErrorContains(t, err, "pool_nested_buffer_total")
	require.ErrorContains(t, insertTwo(other, db), "pool_nested_buffer_total", "it stays so")
	require.InDelta(t, 1500, c.Stats().BufferedBytes, 24)
	readOn(t, first, 0, 40)
	require.NoError(t, insertTwo(other, db), "there is room again")
	readOn(t, second, 0, 40)
	require.Zero(t, c.Stats().BufferedBytes)
}

func TestWhatIsInMemoryIsCountedUntilItIsReadOrSkipped(t *testing.T) {
	_, db, c := openTasks(t, 1)
	require.NoError(t, inTransaction(t.Context(), db, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 10; SELECT n FROM numbers LIMIT 10; SELECT n FROM numbers LIMIT 10")
		require.NoError(t, err)
		require.NoError(t, insertTwo(ctx, db))
		require.EqualValues(t, 720, c.Stats().BufferedBytes)
		require.True(t, rows.Next())
		require.EqualValues(t, 696, c.Stats().BufferedBytes)
		require.True(t, rows.NextResultSet())
		require.EqualValues(t, 480, c.Stats().BufferedBytes)
		require.True(t, rows.NextResultSet())
		require.EqualValues(t, 240, c.Stats().BufferedBytes)
		require.NoError(t, rows.Close())
		require.Zero(t, c.Stats().BufferedBytes)
		return nil
	}))
}

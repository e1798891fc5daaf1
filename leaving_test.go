package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// How a checkout leaves its connection when somebody else has its lock.

// TestWhoeverHadTheLockForNothingKeepsNobody: rows wait for their connection's
// lock while they are read ahead, and get it from a statement whose checkout ends.
func TestWhoeverHadTheLockForNothingKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1)
		ctx, end := WithTask(t.Context())
		defer end()
		for range 20 {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			gate := fakedb.NewGate()
			server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Skip: 2, Gate: gate})
			var both sync.WaitGroup
			both.Go(func() {
				if err := insertTwo(ctx, db); err != nil {
					t.Error(err)
				}
			})
			<-gate.Entered()
			both.Go(func() { rows.Next() })
			synctest.Wait()
			gate.Open()
			both.Wait()
			synctest.Wait()
			require.Zero(t, lent(c), "the rows are in memory, the statement has ended")
			require.NoError(t, rows.Close())
		}
	})
}

func TestAConnectionThatWasTakenBackIsNotWaitedFor(t *testing.T) {
	for _, how := range []func(context.Context, *sql.Conn) error{
		func(ctx context.Context, conn *sql.Conn) error { return conn.PingContext(ctx) },
		func(_ context.Context, conn *sql.Conn) error { return conn.Close() },
	} {
		for _, task := range []bool{false, true} {
			testTakenBackIsNotWaitedFor(t, how, task)
		}
	}
}

func testTakenBackIsNotWaitedFor(t *testing.T, how func(context.Context, *sql.Conn) error, task bool) {
	t.Helper()
	server, db, c := openTasks(t, 2)
	own := t.Context()
	if task {
		ctx, end := WithTask(own)
		defer end()
		own = ctx
	}
	conn, err := db.Conn(own)
	require.NoError(t, err)
	rows, err := conn.QueryContext(own, "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	busy, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, busy.PingContext(t.Context()))
	ctx, end := WithTask(t.Context())
	defer end()
	gate := held(server, "INSERT")
	var other sync.WaitGroup
	other.Go(func() {
		if err := insertTwo(ctx, db); err != nil {
			t.Error(err)
		}
	})
	<-gate.Entered() // on the connection of the rows
	require.NoError(t, busy.Close())
	impatient, cancel := context.WithTimeout(own, time.Minute)
	defer cancel()
	soon(t, "the next operation", func() {
		go func() { // a *sql.Conn is closed when its rows are
			for rows.Next() {
			}
		}()
		require.NoError(t, how(impatient, conn))
	})
	_ = conn.Close()
	gate.Open()
	other.Wait()
	require.Eventually(t, func() bool { return lent(c) == 0 }, 30*time.Second, time.Millisecond)
}

func TestAConnectionThatRawCalledBadIsNotUsedAgainInItsTask(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.OnClean = func() (bool, error) { return true, nil }
	ctx, end := WithTask(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	done := inRaw(ctx, conn, func(driver.Conn) error { return driver.ErrBadConn })
	go end() // the task ends while it has the connection
	require.Eventually(t, func() bool { return errors.Is(context.Cause(ctx), ErrTaskEnded) }, 30*time.Second, time.Millisecond)
	require.ErrorIs(t, done(), driver.ErrBadConn)
	_ = conn.Close()
	atRest(t, c)
	require.NoError(t, insertTwo(t.Context(), db))
	require.Equal(t, 2, s.Server.State().Opened)
}

// TestRawGivesNoConnectionOnWhichACallWasGivenUp: it may still be under way.
func TestRawGivesNoConnectionOnWhichACallWasGivenUp(t *testing.T) {
	_, db, c := openTasks(t, 1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.PingContext(t.Context()))
	c.pool.Conns()[0].Session.MarkUnusable()
	require.ErrorIs(t, Raw(t.Context(), conn, func(driver.Conn) error { t.Error("called"); return nil }), driver.ErrBadConn)
	require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
	atRest(t, c)
}

// A statement that leaves one connection for the main one may be held up by that.
func TestAStatementDoesNotWaitForAConnectionThatHasLeftItsTaskMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, _ := openTasks(t, 2)
		ctx, end := WithTask(t.Context())
		defer end()
		conn := takeConn(t, ctx, db)
		require.NoError(t, conn.PingContext(ctx)) // session 1
		tx, err := db.BeginTx(ctx, nil)           // session 2
		require.NoError(t, err)
		leaving := fakedb.NewGate()
		server.Inject(fakedb.Fault{Call: fakedb.ConnValid, Session: 1, Gate: leaving})
		inserted := make(chan error, 1)
		go func() { inserted <- insertTwo(ctx, conn) }()
		<-leaving.Entered()
		require.NoError(t, tx.Commit())
		other, endOther := WithTask(t.Context())
		defer endOther()
		gate := held(server, "(7)")
		foreign := make(chan error, 1)
		go func() { _, err := db.ExecContext(other, "INSERT INTO t VALUES (7)"); foreign <- err }()
		<-gate.Entered() // on session 2
		leaving.Open()
		synctest.Wait()
		select {
		case err := <-inserted:
			require.NoError(t, err)
		default:
			t.Error("it waits for a statement of another task")
		}
		gate.Open()
		require.NoError(t, <-foreign)
	})
}

func TestRowsThatAreClosedWhileTheyAreReadAheadLeaveNothingInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1)
		require.NoError(t, InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			gate := server.Block(fakedb.RowsNext)
			nested, closed := make(chan error, 1), make(chan error, 1)
			go func() { nested <- insertTwo(ctx, db) }()
			<-gate.Entered()
			go func() { closed <- rows.Close() }()
			synctest.Wait()
			gate.Open()
			require.NoError(t, <-closed)
			return <-nested
		}))
		require.Zero(t, c.Stats().BufferedBytes)
	})
}

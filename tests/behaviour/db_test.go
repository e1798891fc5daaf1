package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/fakedb"
	"github.com/pooldriver/pooldriver/internal/randomtest"
)

// watchers is how many goroutines of database/sql wait for the end of the context of rows.
func watchers() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "created by database/sql.(*Rows).initContextClose")
}

// The test is not parallel, so no other test has rows.
func TestARowOfADBHasNoGoroutine(t *testing.T) {
	_, db, _ := openFake(t, everything)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := watchers()

	row := pooldriver.DB{DB: db}.QueryRowContext(ctx, "SELECT 1")
	require.Equal(t, before, watchers())
	require.NoError(t, row.Scan(new(int)))

	row = db.QueryRowContext(ctx, "SELECT 1")
	require.Eventually(t, func() bool { return watchers() == before+1 }, 5*time.Second, time.Millisecond,
		"database/sql starts none any more: a DB is of no use")
	require.NoError(t, row.Scan(new(int)))
}

// counting is a context that counts what waits for its end.
type counting struct {
	context.Context
	waiting *atomic.Int64
}

// AfterFunc is what context.AfterFunc calls.
func (c counting) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	done := func() { c.waiting.Add(-1) }
	stopped := context.AfterFunc(c.Context, func() {
		done()
		f()
	})
	return func() bool {
		if !stopped() {
			return false
		}
		done()
		return true
	}
}

// Done is a channel of its own, so that package context does not see the context within.
func (c counting) Done() <-chan struct{} { return notTheirs }

var notTheirs = make(chan struct{})

func (c counting) Value(key any) any { return nil }

// A request's context lives on for long after a query: what a query leaves there is a leak.
func TestAQueryOfADBLeavesNothingAtItsContext(t *testing.T) {
	server, db, c := openTasks(t, 1)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	ctx := counting{t.Context(), new(atomic.Int64)}
	quick := pooldriver.DB{DB: db}

	row := quick.QueryRowContext(ctx, "SELECT a FROM t")
	require.EqualValues(t, 1, ctx.waiting.Load())
	require.NoError(t, row.Scan(new(int)))
	require.Zero(t, ctx.waiting.Load())

	require.ErrorIs(t, quick.QueryRowContext(ctx, "SELECT a FROM t WHERE a = 2").Scan(new(int)), sql.ErrNoRows)
	require.Error(t, quick.QueryRowContext(ctx, "SELECT a FROM t").Scan(new(time.Time)), "a number is no time")
	require.Error(t, quick.QueryRowContext(ctx, "SELECT a FROM t").Scan(), "no place for a column")
	require.Error(t, quick.QueryRowContext(ctx, "SELECT a FROM t").Scan(new(sql.RawBytes)), "not with a row")
	require.Error(t, quick.QueryRowContext(ctx, "SELECT a FROM missing").Scan(new(int)))
	server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Err: io.ErrUnexpectedEOF})
	require.ErrorIs(t, quick.QueryRowContext(ctx, "SELECT a FROM t").Scan(new(int)), io.ErrUnexpectedEOF)
	require.Zero(t, ctx.waiting.Load())
	atRest(t, c)
	require.Zero(t, db.Stats().InUse)
}

func TestARowThatNobodyScansEndsWithItsContext(t *testing.T) {
	server, db, c := openTasks(t, 1)
	db.SetMaxOpenConns(1)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	ctx, cancel := context.WithCancel(t.Context())
	row := pooldriver.DB{DB: db}.QueryRowContext(ctx, "SELECT a FROM t")
	require.Equal(t, 1, server.State().OpenRows())

	cancel()
	require.Eventually(t, func() bool { return server.State().OpenRows() == 0 }, 5*time.Second, time.Millisecond)
	atRest(t, c)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (2)")
	require.Equal(t, context.Canceled, row.Scan(new(int)))
	require.NoError(t, row.Err())
}

// Some drivers close a connection when a context ends. database/sql then closes the virtual connection, too.
func TestARowWhoseConnectionIsBadAtTheEndOfItsContextCostsBoth(t *testing.T) {
	server, db, c := openFake(t, everything, maxConns(1))
	ctx, cancel := context.WithCancel(t.Context())
	row := pooldriver.DB{DB: db}.QueryRowContext(ctx, "SELECT 1")
	server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Err: driver.ErrBadConn})
	cancel()
	require.Eventually(t, func() bool { return db.Stats().OpenConnections == 0 }, 5*time.Second, time.Millisecond)
	atRest(t, c)
	require.ErrorIs(t, row.Scan(new(int)), context.Canceled)
	require.NoError(t, db.QueryRow("SELECT 1").Scan(new(int)))
}

// In a task a query of a DB sees the transaction, as that of the *sql.DB does.
func TestADBJoinsTheTransactionOfItsTask(t *testing.T) {
	_, db, _ := openTasks(t, 1)
	quick := pooldriver.DB{DB: db}
	var n int
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
		return quick.QueryRowContext(ctx, "SELECT COUNT(*) FROM t").Scan(&n)
	}))
	require.Equal(t, 1, n)
}

// deriving gives the driver below it a context of its own, as tracing libraries do.
type deriving struct{ *pooldriver.Connector }

type derivingConn struct {
	driver.Conn
	driver.QueryerContext
}

func (d deriving) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return derivingConn{c, c.(driver.QueryerContext)}, nil
}

func (c derivingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.QueryerContext.QueryContext(context.WithValue(ctx, anyKey{}, "a span"), query, args)
}

func TestARowEndsWithItsContextUnderAWrapperThatChangesTheContext(t *testing.T) {
	server, _, c := openFake(t, everything)
	wrapped := sql.OpenDB(deriving{c})
	defer wrapped.Close()
	ctx, cancel := context.WithCancel(t.Context())
	row := pooldriver.DB{DB: wrapped}.QueryRowContext(ctx, "SELECT 1")
	require.NoError(t, row.Err())
	cancel()
	require.Eventually(t, func() bool { return server.State().OpenRows() == 0 && wrapped.Stats().InUse == 0 }, 5*time.Second, time.Millisecond)
	require.ErrorIs(t, row.Scan(new(int)), context.Canceled)
}

// Contexts end at any moment of a query, of its rows and of their close.
func TestContextsOfADBThatEndAtAnyMomentLoseNoConnection(t *testing.T) {
	const goroutines = 16
	server, db, c := openTasks(t, 3)
	db.SetMaxOpenConns(6)
	quick := pooldriver.DB{DB: db}
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	rounds := randomtest.Rounds(200, 20000)
	var read, ended atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				ending := rand.N(200 * time.Microsecond)
				timer := time.AfterFunc(ending, cancel)
				row := quick.QueryRowContext(ctx, "SELECT a FROM t")
				if rand.IntN(4) == 0 {
					continue // forgotten
				}
				var v int
				switch err := row.Scan(&v); {
				case err == nil && v == 1:
					read.Add(1)
				case ctx.Err() != nil:
					ended.Add(1)
				default:
					t.Errorf("%d, %v", v, err)
				}
				timer.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 5*time.Second, time.Millisecond)
	atRest(t, c)
	require.Zero(t, server.State().OpenRows())
	require.NotZero(t, read.Load())
	require.NotZero(t, ended.Load())
}

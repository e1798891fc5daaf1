package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/pool"
)

// drains begins to drain c, and returns the result to come.
func drains(c *pooldriver.Connector) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Drain(context.Background()) }()
	synctest.Wait()
	return done
}

// requireDrained: the result is there soon, and the server has no connection.
func requireDrained(t *testing.T, server *fakedb.Server, c *pooldriver.Connector, done <-chan error) {
	t.Helper()
	time.Sleep(2 * drainLook)
	synctest.Wait()
	select {
	case err := <-done:
		require.NoError(t, err)
	default:
		require.Fail(t, "Drain has not returned")
	}
	require.Empty(t, server.State().Sessions)
}

func insert(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}) error {
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	return err
}

// TestWhatHasBegunMayFinishWhileDraining: each case begins something and returns how it
// goes on, to its end.
func TestWhatHasBegunMayFinishWhileDraining(t *testing.T) {
	for name, tc := range map[string]struct {
		options []pooldriver.Option
		begin   func(t *testing.T, ctx context.Context, db *sql.DB) (finish func() error)
	}{
		"a transaction": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() error { return errors.Join(insert(ctx, tx), tx.Commit()) }
		}},
		"a *sql.Conn that has run a statement": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			conn := someConn(t, ctx, db)
			require.NoError(t, insert(ctx, conn))
			return func() error {
				tx, err := conn.BeginTx(ctx, nil)
				return errors.Join(err, tx.Commit(), conn.Close())
			}
		}},
		"rows without a task": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			require.NoError(t, insert(ctx, db))
			rows, err := db.QueryContext(ctx, "SELECT a FROM t")
			require.NoError(t, err)
			return func() error {
				require.True(t, rows.Next())
				return errors.Join(rows.Err(), rows.Close())
			}
		}},
		"a task with state, and its other statements": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			ctx, end := pooldriver.WithTask(ctx)
			mustExec(t, ctx, db, "SET a = 1")
			return func() error {
				defer end()
				return insert(ctx, db)
			}
		}},
		"a task made inside a transaction": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			ctx, end := pooldriver.WithTask(ctx)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() error {
				defer end()
				inner, endInner := pooldriver.NewTask(ctx)
				defer endInner()
				return errors.Join(pooldriver.InTx(inner, db, nil, insertOnce), insert(pooldriver.Outside(inner), db), tx.Commit())
			}
		}},
		"an implicit task with rows, and a second connection": {options: []pooldriver.Option{taskKey},
			begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
				ctx, cancel := context.WithCancel(context.WithValue(ctx, anyKey{}, 1))
				rows, err := db.QueryContext(ctx, "SELECT 1")
				require.NoError(t, err)
				return func() error {
					defer cancel()
					return errors.Join(insert(ctx, db), pooldriver.InTx(ctx, db, nil, insertOnce), rows.Close())
				}
			}},
		"a deferred transaction": {options: []pooldriver.Option{lazily}, begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() error { return errors.Join(insert(ctx, tx), tx.Commit()) }
		}},
		"a deferred transaction without a statement": {options: []pooldriver.Option{lazily}, begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return tx.Commit
		}},
		"a deferred transaction whose context ends": {options: []pooldriver.Option{lazily}, begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			ctx, cancel := context.WithCancel(ctx)
			_, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() error { cancel(); return nil }
		}},
		"Raw": {begin: func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			conn := someConn(t, ctx, db)
			goOn, done := make(chan struct{}), make(chan error)
			go func() {
				err := pooldriver.Raw(ctx, conn, func(driver.Conn) error { <-goOn; return nil })
				done <- errors.Join(err, conn.Close())
			}()
			return func() error { close(goOn); return <-done }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 3, tc.options...)
				finish := tc.begin(t, t.Context(), db)
				synctest.Wait()
				done := drains(c)
				time.Sleep(time.Minute)
				require.Empty(t, done, "something is not over")
				requireRefused(t, db)
				require.NoError(t, finish())
				requireDrained(t, server, c, done)
				requireRefused(t, db)
			})
		})
	}
}

// taskKey makes a task of each context with an anyKey.
func taskKey(c *pooldriver.Config) {
	c.TaskKey = func(ctx context.Context) (any, context.Context) { return ctx.Value(anyKey{}), ctx }
}

func someConn(t *testing.T, ctx context.Context, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	return conn
}

// requireRefused: what is new gets no connection, and is told why.
func requireRefused(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	conn := someConn(t, ctx, db)
	defer conn.Close()
	_, begin := db.BeginTx(context.Background(), nil)
	for _, err := range []error{insert(t.Context(), db), insert(ctx, db), insert(ctx, conn), begin, db.PingContext(t.Context())} {
		require.ErrorIs(t, err, pool.ErrClosed)
		require.ErrorContains(t, err, "Connector.Drain was called")
	}
}

func TestAStatementThatWaitsIsServedWhileDraining(t *testing.T) {
	for _, inTask := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			tx, err := db.Begin()
			require.NoError(t, err)
			waited := make(chan error, 2)
			for range 2 {
				go func() {
					ctx := t.Context()
					if inTask {
						withTask, end := pooldriver.WithTask(ctx)
						defer end()
						ctx = withTask
					}
					waited <- insert(ctx, db)
				}()
			}
			synctest.Wait()
			require.Equal(t, 2, c.Stats().Pool.Waiting)
			done := drains(c)
			require.NoError(t, tx.Commit())
			require.NoError(t, <-waited)
			require.NoError(t, <-waited)
			requireDrained(t, server, c, done)
		})
	}
}

// TestAStatementThatMovesFromADeadConnectionMayFinish: for a moment it has none, and nobody
// has one.
func TestAStatementThatMovesFromADeadConnectionMayFinish(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.LazyBegin = lazy })
			work, call := func() error { return insert(t.Context(), db) }, fakedb.ConnExecCtx
			if lazy { // the first statement begins the transaction
				tx, err := db.Begin()
				require.NoError(t, err)
				work, call = func() error { return errors.Join(insert(t.Context(), tx), tx.Commit()) }, fakedb.ConnBeginCtx
			}
			dead, dial := fakedb.NewGate(), fakedb.NewGate()
			server.Inject(fakedb.Fault{Call: call, Gate: dead, Err: driver.ErrBadConn, Kill: true})
			finished := make(chan error, 1)
			go func() { finished <- work() }()
			synctest.Wait()
			done := drains(c)
			server.Inject(fakedb.Fault{Call: fakedb.Connect, Gate: dial})
			dead.Open()
			synctest.Wait()
			require.Empty(t, done, "counted also when it neither has a connection nor waits")
			dial.Open()
			require.NoError(t, <-finished)
			require.EqualValues(t, 1, c.Stats().Retries)
			requireDrained(t, server, c, done)
		})
	}
}

func TestDrainWaitsForConnectionsThatAreCleaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, c := openStub(t, dialects.Traits{})
		goOn := make(chan struct{})
		s.OnClean = func() (bool, error) { <-goOn; return true, nil }
		mustExec(t, t.Context(), db, "SET a = 1")
		done := drains(c)
		time.Sleep(time.Minute)
		require.Empty(t, done)
		close(goOn)
		requireDrained(t, s.Server, c, done)
	})
}

// TestDrainWaitsForDials that nobody needs any more, for a second.
func TestDrainWaitsForDials(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 2)
			tx, err := db.Begin()
			require.NoError(t, err)
			dial := server.Block(fakedb.Connect)
			waited := make(chan error, 1)
			go func() { waited <- insert(t.Context(), db) }()
			synctest.Wait()
			require.NoError(t, tx.Commit())
			require.NoError(t, <-waited, "it gets the transaction's connection")
			done := drains(c)
			time.Sleep(closeWait / 2)
			require.Empty(t, done)
			if ends {
				dial.Open()
			} else {
				time.Sleep(closeWait / 2)
			}
			requireDrained(t, server, c, done)
			require.Equal(t, ends, server.State().Opened == 2)
		})
	}
}

func TestDrainSaysWhoIsNotDoneWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 4)
		tx, err := db.Begin()
		require.NoError(t, err)
		task, end := pooldriver.WithTask(t.Context())
		inTask, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		conn := someConn(t, t.Context(), db)
		require.NoError(t, conn.PingContext(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err = c.Drain(ctx)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, pool.ErrClosed)
		for _, part := range []string{
			"pooldriver: draining ", "call Drain again, or call Close (",
			"a checkout at ", "TestDrainSaysWhoIsNotDoneWhenItsContextEnds",
			" (transaction, for 3s, idle for 3s, last BEGIN): commit its transaction or roll it back; task ",
			" (conn, for 3s, idle for 3s): close its *sql.Conn; lent 3, of these being cleaned 0",
			"lent 3, of these being cleaned 0; waiting 0; begun and without a connection 0)",
		} {
			require.ErrorContains(t, err, part)
		}
		requireRefused(t, db)
		require.NoError(t, errors.Join(insert(task, inTask), inTask.Commit(), tx.Commit(), conn.Close()))
		end()
		require.NoError(t, c.Drain(t.Context()), "again")
		require.Empty(t, server.State().Sessions)
		require.NoError(t, c.Drain(t.Context()), "and again")
	})
}

func TestDrainOfAConnectorThatIsClosedOrWasNeverOne(t *testing.T) {
	_, db, c := openTasks(t, 1)
	require.NoError(t, db.Close())
	require.NoError(t, c.Drain(t.Context()))
	bad := pooldriver.New("nonsense")
	_, err := bad.Connect(t.Context())
	require.Equal(t, err, bad.Drain(t.Context()))
	require.Error(t, err)
}

func TestDrainRefusesWarm(t *testing.T) {
	_, _, c := openTasks(t, 1)
	require.NoError(t, c.Drain(t.Context()))
	require.ErrorIs(t, c.Warm(t.Context()), pool.ErrClosed)
}

// TestDrainUnderLoad: whatever has begun succeeds, a hundred times.
func TestDrainUnderLoad(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 3, func(c *pooldriver.Config) { c.LazyBegin = rand.IntN(2) == 0 })
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for work(t, db) {
					}
				})
			}
			time.Sleep(rand.N(20 * time.Millisecond))
			began := time.Now()
			require.NoError(t, c.Drain(t.Context()))
			require.LessOrEqual(t, time.Since(began), 16*longestWork+2*drainLook, "those who waited, and those before them")
			require.Empty(t, server.State().Sessions)
			all.Wait()
		})
	}
}

// drainLook is how often Drain looks; closeWait is how long closing waits for a dial.
const (
	drainLook = time.Millisecond
	closeWait = time.Second
)

const longestWork = 5 * time.Millisecond

// work does one piece of work, and reports whether it was not refused. Once it has begun
// nothing may fail.
func work(t *testing.T, db *sql.DB) bool {
	ctx := t.Context()
	if rand.IntN(2) == 0 {
		withTask, end := pooldriver.WithTask(ctx)
		defer end()
		ctx = withTask
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		if !errors.Is(err, pool.ErrClosed) {
			t.Errorf("begin: %v", err)
		}
		return false
	}
	time.Sleep(rand.N(longestWork))
	if err := errors.Join(insert(ctx, tx), insert(ctx, tx), tx.Commit()); err != nil {
		t.Errorf("a transaction that had begun: %v", err)
	}
	return true
}

package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// notes are what an observer is told.
type notes struct {
	mu       sync.Mutex
	dials    []pooldriver.DialInfo
	acquires []pooldriver.AcquireInfo
	releases []pooldriver.ReleaseInfo
	resets   []pooldriver.ResetInfo
	closes   []pooldriver.CloseInfo
	tasks    []pooldriver.TaskInfo
}

func note[T any](n *notes, to *[]T, info T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*to = append(*to, info)
}

func (n *notes) option(c *pooldriver.Config) {
	c.Observer = &pooldriver.Observer{
		DialDone:    func(i pooldriver.DialInfo) { note(n, &n.dials, i) },
		AcquireDone: func(_ context.Context, i pooldriver.AcquireInfo) { note(n, &n.acquires, i) },
		ReleaseDone: func(i pooldriver.ReleaseInfo) { note(n, &n.releases, i) },
		ResetDone:   func(i pooldriver.ResetInfo) { note(n, &n.resets, i) },
		Closed:      func(i pooldriver.CloseInfo) { note(n, &n.closes, i) },
		TaskDone:    func(i pooldriver.TaskInfo) { note(n, &n.tasks, i) },
	}
}

func TestAnObserverIsToldOfTheWholeLifeOfAConnection(t *testing.T) {
	var n notes
	synctest.Test(t, func(t *testing.T) {
		g, db, _, _ := openGateway(t, n.option, func(c *pooldriver.Config) { c.MaxConns = 1; c.AcquireTimeout = 5 * time.Second })
		g.answer(func(context.Context) error { time.Sleep(time.Second); return errors.New("no route") })
		require.Error(t, db.Ping())
		g.answer(func(context.Context) error { time.Sleep(2 * time.Second); return nil })
		ctx := pooldriver.Label(t.Context(), "job")
		task, end := pooldriver.WithTask(ctx)
		tx, err := db.BeginTx(task, nil)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Error(t, db.PingContext(t.Context()), "the only connection is taken")
		end()
		require.Error(t, tx.Commit(), "it was rolled back")
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), conn, "BEGIN")
		time.Sleep(time.Second)
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.NoError(t, db.Close())
		synctest.Wait()
	})
	require.Len(t, n.dials, 2)
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, []time.Duration{n.dials[0].Duration, n.dials[1].Duration})
	require.ErrorContains(t, n.dials[0].Err, "no route")
	require.NoError(t, n.dials[1].Err)

	require.Len(t, n.acquires, 4)
	require.ErrorContains(t, n.acquires[0].Err, "no route")
	name := n.acquires[1].Task
	require.Regexp(t, `^task \d+$`, name)
	require.Equal(t, pooldriver.AcquireInfo{Wait: 2 * time.Second, Label: "job", Task: name}, n.acquires[1])
	require.ErrorContains(t, n.acquires[2].Err, "no connection to")
	require.Equal(t, 5*time.Second, n.acquires[2].Wait)
	require.Equal(t, pooldriver.AcquireInfo{}, n.acquires[3])

	require.Equal(t, []pooldriver.ReleaseInfo{
		{Held: 8 * time.Second, IdlePinned: 8 * time.Second, Timed: true, Pin: pooldriver.PinTransaction, Statements: 1, Label: "job", Task: name},
		{Held: time.Second, IdlePinned: time.Second, Timed: true, Pin: pooldriver.PinRawTransaction, Statements: 1},
	}, n.releases)
	require.Equal(t, []pooldriver.TaskInfo{{Name: name, Label: "job", Duration: n.tasks[0].Duration, RolledBack: true}}, n.tasks)
	require.GreaterOrEqual(t, n.tasks[0].Duration, 8*time.Second)
	require.Equal(t, pooldriver.ResetInfo{RolledBack: true}, n.resets[len(n.resets)-1])
	require.Len(t, n.closes, 1)
	require.Equal(t, pooldriver.CloseShutdown, n.closes[0].Reason)
	require.GreaterOrEqual(t, n.closes[0].Age, 9*time.Second)
}

func TestAnObserverIsToldWhyAConnectionIsClosed(t *testing.T) {
	var n notes
	s, db, c := openStub(t, dialects.Traits{}, n.option, func(c *pooldriver.Config) { c.MaxConns = 1 })
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Kill: true, Err: driver.ErrBadConn})
	_, _ = db.Exec("INSERT INTO t VALUES (1)")
	require.Eventually(t, func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.closes) == 1 }, patience, time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Equal(t, pooldriver.CloseLost, n.closes[0].Reason)
	require.EqualValues(t, 1, c.Stats().Closed[pooldriver.CloseLost])
}

// everyFunction has all functions of an observer do something.
func everyFunction(do func()) pooldriver.Option {
	return func(c *pooldriver.Config) {
		c.Observer = &pooldriver.Observer{
			DialDone:    func(pooldriver.DialInfo) { do() },
			AcquireDone: func(context.Context, pooldriver.AcquireInfo) { do() },
			ReleaseDone: func(pooldriver.ReleaseInfo) { do() },
			ResetDone:   func(pooldriver.ResetInfo) { do() },
			Closed:      func(pooldriver.CloseInfo) { do() },
			TaskDone:    func(pooldriver.TaskInfo) { do() },
		}
	}
}

func useEverything(t *testing.T, db *sql.DB) {
	task, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(task, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	end()
	leaveOpen(t, db)
	require.NoError(t, db.Ping())
}

func TestAPanicOfAnObserverCostsNothing(t *testing.T) {
	log := &lockedBuffer{}
	_, db, c := openTasks(t, 1, everyFunction(func() { panic("s3cr3t") }), func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	useEverything(t, db)
	atRest(t, c)
	require.EqualValues(t, 1, c.Stats().Pool.Creates)
	require.NoError(t, db.Close())
	for _, function := range []string{"DialDone", "AcquireDone", "ReleaseDone", "ResetDone", "TaskDone"} {
		require.Eventually(t, func() bool { return log.lines("function=Config.Observer."+function) > 0 }, patience, time.Millisecond, function)
	}
	require.NotContains(t, log.text(), "s3cr3t")
}

// TestAnObserverMayUseTheOnlyConnection: no lock is held, and whoever is told of a release
// finds the connection on its way back.
func TestAnObserverMayUseTheOnlyConnection(t *testing.T) {
	var db *sql.DB
	inside := make(chan struct{}, 1) // it is not told of its own
	_, opened, c := openTasks(t, 1, func(c *pooldriver.Config) {
		use := func() {
			select {
			case inside <- struct{}{}:
				defer func() { <-inside }()
				if err := db.Ping(); err != nil {
					panic(err)
				}
			default:
			}
		}
		c.Observer = &pooldriver.Observer{ReleaseDone: func(pooldriver.ReleaseInfo) { use() }, ResetDone: func(pooldriver.ResetInfo) { use() }, TaskDone: func(pooldriver.TaskInfo) { use() }}
	})
	db = opened
	soon(t, "an observer that uses the connection", func() { useEverything(t, db) })
	atRest(t, c)
}

func TestAnObserverThatEndsItsGoroutineCostsNoConnection(t *testing.T) {
	once := make(chan struct{}, 1)
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) {
		c.Observer = &pooldriver.Observer{AcquireDone: func(context.Context, pooldriver.AcquireInfo) {
			select {
			case <-once:
				runtime.Goexit()
			default:
			}
		}}
	})
	gone := make(chan struct{})
	once <- struct{}{}
	go func() {
		defer close(gone)
		_ = db.Ping()
	}()
	<-gone
	require.Zero(t, lent(c))
	require.NoError(t, db.Ping())
}

// TestSeeingInAllocatesNothing: each row is a way to watch the same statements.
func TestSeeingInAllocatesNothing(t *testing.T) {
	for name, option := range map[string]pooldriver.Option{
		"nothing":   func(c *pooldriver.Config) { c.SampleStacks = 0 },
		"the rule":  func(*pooldriver.Config) {},
		"all":       everyStack,
		"observer":  everyFunction(func() {}),
		"the leaks": func(c *pooldriver.Config) { c.LeakAfter = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			c := pooldriver.Wrap(fakedb.NullConnector{}, option)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			connected, err := c.Connect(t.Context())
			require.NoError(t, err)
			conn := connected.(interface {
				driver.ExecerContext
				driver.Validator
			})
			ctx := pooldriver.Label(context.Background(), "job")
			checkout := func() {
				if _, err := conn.ExecContext(ctx, "insert into t values (1)", nil); err != nil || !conn.IsValid() {
					t.Fatal(err)
				}
			}
			checkout()
			require.Zero(t, testing.AllocsPerRun(1000, checkout))
		})
	}
}

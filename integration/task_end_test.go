package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// work is a task that leaves something open.
type work struct {
	*testing.T
	stagePool
	ctx    context.Context
	handle []func() error // what the program may still do with what it holds; each must fail
	drop   []func() error // gives it up
}

func (w *work) exec(statement string) { w.T.Helper(); w.mustExec(w.ctx, w.T, statement) }

func (w *work) begin(ctx context.Context) *sql.Tx {
	tx, err := w.BeginTx(ctx, nil)
	require.NoError(w.T, err)
	w.handle = append(w.handle, tx.Commit)
	w.drop = append(w.drop, tx.Rollback)
	return tx
}

func (w *work) query(from interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, query string) {
	rows, err := from.QueryContext(w.ctx, query)
	require.NoError(w.T, err)
	require.True(w.T, rows.Next())
	w.handle = append(w.handle, func() error {
		n := 1
		for ; rows.Next(); n++ {
		}
		if n == 500 {
			return errAllRead
		}
		return rows.Err()
	})
	w.drop = append(w.drop, rows.Close)
}

const someRows = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 500) SELECT n FROM r"

// errAllRead: rows that are in memory can be read to their end, if the end of
// their context has not reached database/sql yet.
var errAllRead = errors.New("every row was there")

// leftovers are what a task may leave open. None of it is committed.
var leftovers = []struct {
	name    string
	visible bool // in the database, while the task lasts
	leave   func(w *work)
}{
	{"nothing", false, func(*work) {}},
	{"a statement that has ended", false, func(w *work) { require.Zero(w.T, w.count(w.ctx, w.T)) }},
	{"a transaction", true, func(w *work) {
		tx := w.begin(w.ctx)
		w.exec(insertInto(1))
		_, err := tx.ExecContext(w.ctx, insertInto(2))
		require.NoError(w.T, err)
	}},
	{"a transaction whose own context goes on", true, func(w *work) {
		w.begin(context.WithoutCancel(w.ctx))
		w.exec(insertInto(1))
	}},
	{"a transaction of a statement's", true, func(w *work) {
		w.exec("BEGIN")
		w.exec(insertInto(1))
	}},
	{"savepoints", true, func(w *work) {
		for i := range 3 {
			w.begin(w.ctx)
			w.exec(insertInto(i))
		}
	}},
	{"a variable", false, func(w *work) {
		w.exec(w.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", "PRAGMA case_sensitive_like = ON"))
	}},
	{"a temporary table", false, func(w *work) {
		w.exec(w.say("CREATE TEMP TABLE left_behind (id integer)", "CREATE TEMPORARY TABLE left_behind (id integer)",
			"CREATE TEMP TABLE left_behind (id integer)"))
	}},
	{"a lock", true, func(w *work) {
		w.exec(w.say("SELECT pg_advisory_lock(7)", "DO GET_LOCK(CONCAT(DATABASE(), '.7'), 0)", "BEGIN IMMEDIATE"))
	}},
	{"rows", false, func(w *work) {
		w.query(w.DB, someRows)
		w.query(w.DB, someRows)
	}},
	{"rows in a transaction", true, func(w *work) {
		tx := w.begin(w.ctx)
		w.exec(insertInto(1))
		w.query(tx, someRows)
		w.query(w.DB, someRows)
	}},
	{"a connection", true, func(w *work) {
		conn, err := w.Conn(w.ctx)
		require.NoError(w.T, err)
		_, err = conn.ExecContext(w.ctx, w.say("SET app.tenant = 'bob'", "SET @tenant = 'bob'", "SELECT 1"))
		require.NoError(w.T, err)
		for _, statement := range []string{"BEGIN", insertInto(1)} {
			_, err = conn.ExecContext(context.Background(), statement)
			require.NoError(w.T, err)
		}
		w.handle = append(w.handle, func() error {
			_, err := conn.ExecContext(context.Background(), insertInto(2))
			return err
		})
		w.drop = append(w.drop, conn.Close)
	}},
	{"prepared statements", true, func(w *work) {
		tx := w.begin(w.ctx)
		for _, from := range []interface {
			PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
		}{w.DB, tx} {
			stmt, err := from.PrepareContext(w.ctx, insertInto(1))
			require.NoError(w.T, err)
			_, err = stmt.ExecContext(w.ctx)
			require.NoError(w.T, err)
			w.handle = append(w.handle, func() error {
				_, err := stmt.ExecContext(context.WithoutCancel(w.ctx))
				return err
			})
			w.drop = append(w.drop, stmt.Close)
		}
	}},
	{"what many goroutines did at once", true, func(w *work) {
		w.begin(w.ctx)
		for _, err := range parallel(8, func() error {
			_, err := w.ExecContext(w.ctx, insertInto(1))
			return err
		}) {
			require.NoError(w.T, err)
		}
	}},
}

// expiring is a context whose deadline the test brings about.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.done }

func (e expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// wayOut ends a task. It is called in a task's stead: leave is the task's body.
type wayOut struct {
	name   string
	closed bool // the pool, too
	out    func(w *work, leave func())
}

var waysOut = []wayOut{
	{name: "end", out: ending(func(_ *work, end func()) { end() })},
	{name: "return", out: func(w *work, leave func()) {
		require.NoError(w.T, pooldriver.Do(w.T.Context(), func(ctx context.Context) error {
			w.ctx = ctx
			leave()
			return nil
		}))
	}},
	{name: "return of an error", out: func(w *work, leave func()) {
		no := errors.New("no")
		require.ErrorIs(w.T, pooldriver.Do(w.T.Context(), func(ctx context.Context) error {
			w.ctx = ctx
			leave()
			return no
		}), no)
	}},
	{name: "panic", out: func(w *work, leave func()) {
		require.PanicsWithValue(w.T, "oh", func() {
			_ = pooldriver.Do(w.T.Context(), func(ctx context.Context) error {
				w.ctx = ctx
				leave()
				panic("oh")
			})
		})
	}},
	{name: "end, twice", out: ending(func(_ *work, end func()) { end(); end() })},
	{name: "end, by many at once", out: ending(func(_ *work, end func()) {
		parallel(8, func() error { end(); return nil })
	})},
	{name: "cancellation between statements", out: cancelling(func(_ *work, cancel, end func()) { cancel(); end() })},
	{name: "cancellation before a statement", out: cancelling(func(w *work, cancel, end func()) {
		cancel()
		_, err := w.ExecContext(w.ctx, insertInto(9))
		require.Error(w.T, err)
		end()
	})},
	{name: "cancellation during a statement", out: cancelling(func(w *work, cancel, end func()) {
		failed := w.sleepUntilFailed()
		cancel()
		require.Error(w.T, <-failed)
		end()
	})},
	{name: "cancellation without an end", out: cancelling(func(w *work, cancel, _ func()) {
		cancel()
		require.Eventually(w.T, func() bool {
			left, err := w.left(context.Background())
			return err == nil && left == "" && w.lent() == 0
		}, 10*time.Second, time.Millisecond)
	})},
	{name: "a deadline", out: func(w *work, leave func()) {
		parent := expiring{w.T.Context(), make(chan struct{})}
		ctx, end := pooldriver.WithTask(parent)
		w.ctx = ctx
		leave()
		close(parent.done)
		<-ctx.Done()
		end()
	}},
	{name: "end during a statement", out: ending(func(w *work, end func()) {
		failed := w.sleepUntilFailed()
		end()
		require.Error(w.T, <-failed)
	})},
	{name: "end and Close at once", closed: true, out: ending(func(w *work, end func()) {
		var both sync.WaitGroup
		both.Go(func() { _ = w.Close() })
		both.Go(end)
		both.Wait()
	})},
	{name: "the death of its connections", out: ending(func(w *work, end func()) {
		w.killAll(w.T)
		end()
	})},
	{name: "their death and a statement", out: ending(func(w *work, end func()) {
		w.killAll(w.T)
		_, _ = w.ExecContext(w.ctx, "SELECT 1")
		end()
	})},
}

func ending(out func(w *work, end func())) func(*work, func()) {
	return func(w *work, leave func()) {
		ctx, end := pooldriver.WithTask(w.T.Context())
		w.ctx = ctx
		leave()
		out(w, end)
	}
}

func cancelling(out func(w *work, cancel, end func())) func(*work, func()) {
	return func(w *work, leave func()) {
		parent, cancel := context.WithCancel(w.T.Context())
		defer cancel()
		ctx, end := pooldriver.WithTask(parent)
		w.ctx = ctx
		leave()
		out(w, cancel, end)
	}
}

// sleepUntilFailed starts a statement that lasts a minute, and returns when the
// server is at it.
func (w *work) sleepUntilFailed() <-chan error {
	failed := make(chan error, 1)
	if w.name == "sqlite" { // A statement in this process: nobody else can see it.
		running := make(chan struct{})
		go func() {
			close(running)
			rows := "1e12" // until it is interrupted
			if w.odbc {    // it cannot be
				rows = "2e6"
			}
			_, err := w.ExecContext(w.ctx, "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < "+rows+") SELECT max(n) FROM r")
			failed <- err
		}()
		<-running
		return failed
	}
	go func() {
		_, err := w.ExecContext(w.ctx, sleepFor(w.account.Server.Engine, time.Minute))
		failed <- err
	}()
	require.Eventually(w.T, func() bool {
		var n int
		err := w.witness.QueryRowContext(context.Background(), w.say(
			"SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query LIKE 'SELECT pg_sleep%'",
			"SELECT count(*) FROM information_schema.processlist WHERE user = ? AND info LIKE 'SELECT SLEEP%'", ""), w.account.User).Scan(&n)
		return err == nil && n == 1
	}, 10*time.Second, time.Millisecond, "the statement does not begin")
	return failed
}

func (s stage) killAll(t testing.TB) {
	if s.name == "sqlite" {
		return // It has no server that could do it.
	}
	ids, err := s.backends(context.Background())
	require.NoError(t, err)
	for _, id := range ids {
		s.kill(t, id)
	}
}

// TestEveryWayOutOfATaskLeavesNothing crosses what a task may leave open with
// the ways in which it may end. The server is asked at once.
func TestEveryWayOutOfATaskLeavesNothing(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, way := range waysOut {
			t.Run(way.name, func(t *testing.T) {
				for _, leftover := range leftovers {
					t.Run(leftover.name, func(t *testing.T) {
						s := s.fresh(t)
						w := &work{T: t, stagePool: s.open(t, 3)}
						way.out(w, func() {
							leftover.leave(w)
							left, err := s.left(t.Context())
							require.NoError(t, err)
							require.True(t, left != "" || !leftover.visible, "nobody sees it even now")
						})
						w.requireNothingLeft(t)
						for i, use := range w.handle {
							require.Error(t, use(), "handle %d works after the end", i)
						}
						_, err := w.ExecContext(context.WithoutCancel(w.ctx), insertInto(3))
						require.Error(t, err)
						for _, drop := range w.drop {
							_ = drop()
						}
						w.requireNothingLeft(t)
						require.Empty(t, s.stored(t))
						if !way.closed {
							w.requireNextBorrowersSeeNothing(t) // and notice what was killed while idle
						}
						w.requireAtRest(t)
						require.NoError(t, w.Close())
						w.requireAtRest(t)
						require.Zero(t, w.connector.Stats().Pool.Count)
					})
				}
			})
		}
	})
}

// TestStatementsOfATaskThatHasEndedSaySo: whoever kept the context, or a handle
// made with it, is told; nothing runs on another connection instead.
func TestStatementsOfATaskThatHasEndedSaySo(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 2)
		ctx, end := pooldriver.WithTask(t.Context())
		conn, err := p.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.PingContext(ctx))
		stmt, err := p.PrepareContext(ctx, insertInto(1))
		require.NoError(t, err)
		defer stmt.Close()
		end()

		require.ErrorIs(t, context.Cause(ctx), pooldriver.ErrTaskEnded)
		outliving := context.WithoutCancel(ctx)
		for name, use := range map[string]func() error{
			"Exec":        func() error { _, err := p.ExecContext(outliving, insertInto(1)); return err },
			"Query":       func() error { return p.QueryRowContext(outliving, "SELECT 1").Scan(new(int)) },
			"BeginTx":     func() error { _, err := p.BeginTx(outliving, nil); return err },
			"Prepare":     func() error { _, err := p.PrepareContext(outliving, "SELECT 1"); return err },
			"Ping":        func() error { return p.PingContext(outliving) },
			"a statement": func() error { _, err := stmt.ExecContext(outliving); return err },
			"a connection": func() error {
				_, err := conn.ExecContext(context.Background(), insertInto(1))
				return err
			},
			"InTx": func() error {
				return pooldriver.InTx(outliving, p.DB, nil, func(context.Context, *sql.Tx) error { return nil })
			},
		} {
			require.ErrorIs(t, use(), pooldriver.ErrTaskEnded, name)
		}
		require.Empty(t, s.stored(t))
		_, err = p.ExecContext(pooldriver.Outside(outliving), insertInto(5))
		require.NoError(t, err, "a context without a task is not ended with one")
		require.Equal(t, []int{5}, s.stored(t))
	})
}

// TestWhatTheEndOfATaskCutsShortSaysSo: a wait for a lock, the transaction of an InTx, and rows that
// the server is still making. errors.Is finds both ErrTaskEnded and the error of the context.
func TestWhatTheEndOfATaskCutsShortSaysSo(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		both := func(t *testing.T, err error) {
			t.Helper()
			require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
			require.ErrorIs(t, err, context.Canceled)
		}
		limited := func(c *pooldriver.Config) { c.TaskTimeout, c.CleanTimeout = time.Second, 200*time.Millisecond }
		mustExec(t, s.witness, insertInto(1))
		t.Run("a wait for a lock", func(t *testing.T) {
			holder, err := s.witness.Begin()
			require.NoError(t, err)
			defer holder.Rollback()
			_, err = holder.Exec("UPDATE ledger SET id = 2")
			require.NoError(t, err)
			p := s.open(t, 2, limited)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			_, err = p.ExecContext(ctx, "UPDATE ledger SET id = 3")
			both(t, err)
			require.ErrorContains(t, err, "pool_task_timeout")
		})
		t.Run("InTx", func(t *testing.T) {
			err := pooldriver.InTx(t.Context(), s.open(t, 2, limited).DB, nil, func(ctx context.Context, tx *sql.Tx) error {
				<-ctx.Done()
				_, err := tx.ExecContext(ctx, insertInto(4))
				require.Equal(t, context.Canceled, err, "database/sql answers by itself")
				return fmt.Errorf("insert: %w", err)
			})
			both(t, err)
			require.ErrorContains(t, err, "pool_task_timeout")
		})
		t.Run("rows", func(t *testing.T) {
			p := s.open(t, 2, limited)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			p.mustExec(ctx, t, s.setTenant(1)) // the task keeps its connection
			rows, err := p.QueryContext(context.WithoutCancel(ctx), s.say(
				"SELECT repeat('x', 10000), CASE WHEN n = 500 THEN pg_sleep(20) END FROM generate_series(1, 1000) n",
				"SELECT REPEAT('x', 10000), IF(n = 500, SLEEP(20), 0) FROM (WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) s", ""))
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
			}
			both(t, rows.Err())
		})
		require.Equal(t, []int{1}, s.stored(t))
	})
}

// TestATaskOlderThanItsTimeoutEndsByItself: nobody calls end, and no context ends.
func TestATaskOlderThanItsTimeoutEndsByItself(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for name, open := range map[string]func(t *testing.T) stagePool{
			"parameter": func(t *testing.T) stagePool { return s.openURL(t, s.url("pool_task_timeout=2s")) },
			"option": func(t *testing.T) stagePool {
				return s.open(t, 2, func(c *pooldriver.Config) { c.TaskTimeout = 2 * time.Second })
			},
		} {
			t.Run(name, func(t *testing.T) {
				p := open(t)
				begun := time.Now()
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				p.mustExec(ctx, t, insertInto(1))
				left, err := s.left(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, left)

				<-ctx.Done()
				require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
				require.ErrorIs(t, context.Cause(ctx), pooldriver.ErrTaskEnded)
				require.Eventually(t, func() bool {
					left, err := s.left(t.Context())
					return err == nil && left == "" && p.lent() == 0
				}, 10*time.Second, time.Millisecond, "the transaction goes on")
				_, err = p.ExecContext(context.WithoutCancel(ctx), insertInto(2))
				require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
				require.Error(t, tx.Commit())
				require.Empty(t, s.stored(t))
				p.requireAtRest(t)
				require.NoError(t, p.Close())
			})
		}
	})
}

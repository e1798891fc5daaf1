package integration

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// What TrueAsync tests of coroutines, here of tasks; docs/internals/trueasync.md lists all
// of its tests. In this file: which connection a task is on, and how long.

func (p stagePool) mustBegin(ctx context.Context, t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := p.BeginTx(ctx, nil)
	require.NoError(t, err)
	return tx
}

func finish(tx *sql.Tx, commits bool) error {
	if commits {
		return tx.Commit()
	}
	return tx.Rollback()
}

// served is the server's number of the connection that serves ctx. SQLite has no
// server: there it is always 0.
func (p stagePool) served(ctx context.Context, t testing.TB) int64 {
	t.Helper()
	if p.name == "sqlite" {
		return 0
	}
	return p.backend(ctx, t)
}

func TestTasksThatHoldSomethingAreOnConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		for name, statement := range map[string]string{
			"a transaction":     "BEGIN",
			"a variable":        s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", ""),
			"a temporary table": s.say("CREATE TEMP TABLE left_behind (id integer)", "CREATE TEMPORARY TABLE left_behind (id integer)", ""),
		} {
			t.Run(name, func(t *testing.T) {
				p := s.open(t, 4)
				awaitBackends(t, s.account, 0)
				var tasks []context.Context
				var ends []func()
				var own []int64
				for range 2 {
					ctx, end := pooldriver.WithTask(t.Context())
					defer end()
					p.mustExec(ctx, t, statement)
					tasks, ends, own = append(tasks, ctx), append(ends, end), append(own, p.backend(ctx, t))
				}
				require.NotEqual(t, own[0], own[1])
				for range 3 {
					for i, ctx := range tasks {
						require.Equal(t, own[i], p.backend(ctx, t))
						stmt, err := p.PrepareContext(ctx, s.self())
						require.NoError(t, err)
						var id int64
						require.NoError(t, stmt.QueryRowContext(ctx).Scan(&id))
						require.NoError(t, stmt.Close())
						require.Equal(t, own[i], id)
					}
				}
				require.Equal(t, 2, p.lent())
				for _, end := range ends {
					end()
				}
				require.Zero(t, p.lent())
				open, err := s.backends(t.Context())
				require.NoError(t, err)
				require.ElementsMatch(t, own, open)
			})
		}
	})
}

func TestStatementsOfATaskShareTheFateOfItsOwnTransaction(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, commits := range []bool{false, true} {
			t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 2)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				other, endOther := pooldriver.WithTask(t.Context())
				defer endOther()
				tx, otherTx := p.mustBegin(ctx, t), p.mustBegin(other, t)
				require.Zero(t, p.count(other, t))
				_, err := tx.ExecContext(ctx, insertInto(1))
				require.NoError(t, err)
				p.mustExec(ctx, t, insertInto(2))
				require.Equal(t, 2, p.count(ctx, t))
				require.Zero(t, p.count(other, t))
				require.Empty(t, s.stored(t))
				if s.name != "sqlite" { // It has one writer at a time.
					p.mustExec(other, t, insertInto(3))
					require.Equal(t, 2, p.count(ctx, t))
				}

				require.NoError(t, finish(tx, commits))
				if commits {
					require.Equal(t, []int{1, 2}, s.stored(t))
				} else {
					require.Empty(t, s.stored(t))
				}
				require.NoError(t, finish(otherTx, !commits))
				switch {
				case commits:
					require.Equal(t, []int{1, 2}, s.stored(t))
				case s.name != "sqlite":
					require.Equal(t, []int{3}, s.stored(t))
				}
			})
		}
	})
}

// TestATransactionLeftOpenIsUndoneBeforeTheNextTask: at the end of its task, on
// the only connection. Begun by BeginTx or in SQL, it is the same.
func TestATransactionLeftOpenIsUndoneBeforeTheNextTask(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for name, begin := range map[string]func(ctx context.Context, p stagePool) error{
			"BeginTx": func(ctx context.Context, p stagePool) error {
				_, err := p.BeginTx(ctx, nil)
				return err
			},
			"SQL": func(ctx context.Context, p stagePool) error {
				_, err := p.ExecContext(ctx, s.say("START TRANSACTION", "START TRANSACTION", "BEGIN"))
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 1)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				require.NoError(t, begin(ctx, p))
				for i := range 3 {
					p.mustExec(ctx, t, insertInto(i))
				}
				require.Equal(t, 3, p.count(ctx, t))
				require.Empty(t, s.stored(t), "they are inside it")
				id := p.served(ctx, t)
				left, err := s.left(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, left)
				end()
				p.requireNothingLeft(t)

				next, endNext := pooldriver.WithTask(t.Context())
				defer endNext()
				require.Equal(t, id, p.served(next, t))
				require.Zero(t, p.count(next, t))
				p.mustExec(next, t, insertInto(7))
				require.Equal(t, []int{7}, s.stored(t), "it is in no transaction")
				require.Zero(t, p.lent())
				require.EqualValues(t, 1, p.connector.Stats().Pool.Creates)
			})
		}
	})
}

// TestAConnectionIsLentOnlyWhileATaskNeedsIt follows tasks step by step, by the
// pool's figures.
func TestAConnectionIsLentOnlyWhileATaskNeedsIt(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		var p stagePool
		var ctx context.Context
		var first, second *sql.Rows
		var tx *sql.Tx
		query := func(rows **sql.Rows) func() error {
			return func() (err error) {
				*rows, err = p.QueryContext(ctx, someRows)
				return err
			}
		}
		end := func(rows **sql.Rows) func() error { return func() error { return (*rows).Close() } }
		exec := func() error { _, err := p.ExecContext(ctx, insertInto(1)); return err }
		begin := func() (err error) { tx, err = p.BeginTx(ctx, nil); return err }
		commit := func() error { return tx.Commit() }
		prepared := func() error {
			stmt, err := p.PrepareContext(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			defer stmt.Close()
			return stmt.QueryRowContext(ctx).Scan(new(int))
		}
		type step struct {
			do   func() error
			lent int
		}
		for _, c := range []struct {
			name  string
			max   int
			steps []step
		}{
			{"rows", 3, []step{{query(&first), 1}, {end(&first), 0}, {exec, 0}}},
			{"two results on one connection", 1, []step{{query(&first), 1}, {query(&second), 1}, {end(&first), 1}, {end(&second), 0}, {exec, 0}}},
			{"a transaction without statements", 3, []step{{begin, 1}, {exec, 1}, {prepared, 1}, {commit, 0}, {exec, 0}}},
			{"use after use", 3, []step{{exec, 0}, {prepared, 0}, {query(&first), 1}, {end(&first), 0}, {begin, 1}, {commit, 0}, {exec, 0}}},
		} {
			t.Run(c.name, func(t *testing.T) {
				p = s.open(t, c.max)
				require.Zero(t, p.connector.Stats().Pool.Count)
				var endTask func()
				ctx, endTask = pooldriver.WithTask(t.Context())
				defer endTask()
				for i, step := range c.steps {
					require.NoError(t, step.do(), "step %d", i)
					stats := p.connector.Stats().Pool
					require.Equal(t, step.lent, stats.Lent, "step %d", i)
					require.Equal(t, 1-step.lent, stats.Idle, "step %d", i)
				}
				require.EqualValues(t, 1, p.connector.Stats().Pool.Creates)
				if s.name != "sqlite" {
					open, err := s.backends(t.Context())
					require.NoError(t, err)
					require.Len(t, open, 1)
				}
				require.NoError(t, p.Close())
			})
		}
	})
}

// TestStatementsOfATaskAtOnceAreAllAnsweredOnItsConnection: results that are
// open at the same time, one of them larger than what travels at once.
func TestStatementsOfATaskAtOnceAreAllAnsweredOnItsConnection(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		for _, c := range []struct {
			name string
			max  int
			inTx bool
		}{{"in a transaction", 3, true}, {"with rows open on the only connection", 1, false}} {
			t.Run(c.name, func(t *testing.T) {
				p := s.open(t, c.max)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				if c.inTx {
					p.mustBegin(ctx, t)
				}
				long, err := p.QueryContext(ctx, someRows)
				require.NoError(t, err)
				stmt, err := p.PrepareContext(ctx, s.self())
				require.NoError(t, err)
				defer stmt.Close()
				var open []*sql.Rows
				for range 3 {
					rows, err := p.QueryContext(ctx, s.self())
					require.NoError(t, err)
					open = append(open, rows)
					rows, err = stmt.QueryContext(ctx)
					require.NoError(t, err)
					open = append(open, rows)
					p.mustExec(ctx, t, insertInto(1))
				}
				for _, rows := range open {
					ids, err := scanned[int64](rows)
					require.NoError(t, err)
					require.Equal(t, []int64{p.backend(ctx, t)}, ids)
				}
				numbers, err := scanned[int](long)
				require.NoError(t, err)
				require.Len(t, numbers, 500)
				require.Equal(t, 500, numbers[499])
				counted, _, err := s.account.Backends(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, counted)
			})
		}
	})
}

func TestClosingOneHandleOfATaskLeavesTheOthersTheirConnection(t *testing.T) {
	t.Parallel()
	handles := []string{"rows", "a statement", "rows of a statement", "a statement of the transaction", "rows of the transaction"}
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 2)
		for first, name := range handles {
			t.Run(name, func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx := p.mustBegin(ctx, t)
				p.mustExec(ctx, t, insertInto(1))
				id := p.served(ctx, t)
				w := &work{T: t, stagePool: p, ctx: ctx}
				direct, err := p.QueryContext(ctx, someRows)
				require.NoError(t, err)
				read := func(rows *sql.Rows) {
					w.handle = append(w.handle, func() error { _, err := scanned[int](rows); return err })
					w.drop = append(w.drop, rows.Close)
				}
				read(direct)
				for _, from := range []interface {
					PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
				}{p, tx} {
					stmt, err := from.PrepareContext(ctx, someRows)
					require.NoError(t, err)
					w.handle = append(w.handle, func() error { return stmt.QueryRowContext(ctx).Scan(new(int)) })
					w.drop = append(w.drop, stmt.Close)
					rows, err := stmt.QueryContext(ctx)
					require.NoError(t, err)
					read(rows)
				}
				require.Len(t, w.handle, len(handles))

				require.NoError(t, w.drop[first]())
				for i, use := range w.handle {
					if i != first {
						require.NoError(t, use(), handles[i])
					}
				}
				require.Equal(t, id, p.served(ctx, t))
				require.Equal(t, 1, p.lent())
				require.Equal(t, 1, p.count(ctx, t))
				require.Empty(t, s.stored(t), "the transaction goes on")
				for _, drop := range w.drop {
					require.NoError(t, drop())
				}
				require.Equal(t, 1, p.lent())
				require.NoError(t, tx.Commit())
				require.Equal(t, []int{1}, s.stored(t))
				require.Zero(t, p.lent())
			})
		}
	})
}

// TestClosingThePoolLeavesATasksTransactionToItsTask: which may finish it, or
// not.
func TestClosingThePoolLeavesATasksTransactionToItsTask(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, c := range []struct {
			name  string
			after func(tx *sql.Tx) error
			want  []int
		}{
			{"left open", func(*sql.Tx) error { return nil }, []int{}},
			{"rolled back", (*sql.Tx).Rollback, []int{}},
			{"committed", (*sql.Tx).Commit, []int{1, 2}},
		} {
			t.Run(c.name, func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 2)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx := p.mustBegin(ctx, t)
				p.mustExec(ctx, t, insertInto(1))
				require.NoError(t, p.Close())
				_, err := p.ExecContext(ctx, insertInto(3))
				require.Error(t, err, "the *sql.DB is closed")
				_, err = tx.ExecContext(ctx, insertInto(2))
				require.NoError(t, err)
				require.NoError(t, c.after(tx))
				pulse := feelPulse(t, nil)
				began := time.Now()
				end()
				require.Less(t, time.Since(began), time.Second+3*pulse.late())
				p.requireNothingLeft(t)
				require.Equal(t, c.want, s.stored(t))
				p.requireAtRest(t)
				require.Zero(t, p.connector.Stats().Pool.Count)
			})
		}
	})
}

// TestATransactionWaitsForTheOnlyConnection of another task's transaction.
func TestATransactionWaitsForTheOnlyConnection(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		first := p.mustBegin(ctx, t)
		begun, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- pooldriver.Do(t.Context(), func(ctx context.Context) error {
				second, err := p.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				close(begun)
				if _, err := p.ExecContext(ctx, insertInto(2)); err != nil {
					return err
				}
				return second.Commit()
			})
		}()
		require.Eventually(t, func() bool { return p.connector.Stats().Pool.Waiting == 1 }, 10*time.Second, time.Millisecond)
		p.mustExec(ctx, t, insertInto(1))
		select {
		case <-begun:
			t.Fatal("the second transaction has begun")
		default:
		}
		require.NoError(t, first.Commit())
		require.NoError(t, <-done)
		require.Equal(t, []int{1, 2}, s.stored(t))
		require.EqualValues(t, 1, p.connector.Stats().Pool.Creates)
	})
}

func TestWarmOpensTheConnectionsThatTheFirstStatementsUse(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		const warm = 2
		p := s.openURL(t, s.url(fmt.Sprintf("pool_min_conns=%d", warm), "pool_max_conns=5"))
		opened := func() []int64 {
			if s.name == "sqlite" {
				return nil
			}
			ids, err := s.backends(t.Context())
			require.NoError(t, err)
			return ids
		}
		require.Empty(t, opened())
		require.NoError(t, p.connector.Warm(t.Context()))
		before := opened()
		require.Equal(t, warm, p.connector.Stats().Pool.Idle)
		if s.name != "sqlite" {
			require.Len(t, before, warm)
		}
		for range warm {
			conn, err := p.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT 1").Scan(new(int)))
		}
		require.Equal(t, warm, p.lent())
		require.EqualValues(t, warm, p.connector.Stats().Pool.Creates)
		require.ElementsMatch(t, before, opened())
	})
}

// TestWhatATaskSetsLastsUntilItsEnd: several things in one task. The next one has
// the same connection.
func TestWhatATaskSetsLastsUntilItsEnd(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, "CREATE TABLE shared (id integer)")
		mustExec(t, s.witness, "INSERT INTO shared VALUES (1)")
		if s.name == "postgres" {
			mustExec(t, s.witness, "GRANT ALL ON shared TO PUBLIC")
		}
		var left []trail
		for _, leak := range leaks {
			switch leak.name {
			case "a session variable", "a user variable", "the SQL mode", "a temporary table that hides a real one", "an advisory lock":
				if trail, ok := leak.trails[s.account.Server.Engine]; ok {
					left = append(left, trail)
				}
			}
		}
		require.GreaterOrEqual(t, len(left), 4)
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		for _, trail := range left {
			for _, statement := range trail.leave {
				p.mustExec(ctx, t, statement)
			}
		}
		requireSeen := func(ctx context.Context, want bool) {
			for _, trail := range left {
				seen, err := observed(ctx, p.DB, trail.observe)
				require.NoError(t, err)
				require.Equal(t, want, seen, trail.observe)
			}
		}
		requireSeen(ctx, true)
		id := p.backend(ctx, t)
		end()
		next, endNext := pooldriver.WithTask(t.Context())
		defer endNext()
		require.Equal(t, id, p.backend(next, t))
		requireSeen(next, false)
	})
}

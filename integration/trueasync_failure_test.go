package integration

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// What TrueAsync tests of coroutines, here of tasks: several at once, killed and
// cancelled ones, and what they leave behind.

func TestManyTasksInsertThroughOneStatement(t *testing.T) {
	t.Parallel()
	const tasks, each, limit = 30, 3, 5
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, limit)
		if s.name != "sqlite" {
			s.account.LimitConnections(t, limit) // The server refuses one too many.
			watch := s.account.Watch(t)
			defer func() {
				peak := watch.Stop().Backends
				require.Positive(t, peak)
				require.LessOrEqual(t, peak, limit)
			}()
		}
		insert, err := p.PrepareContext(t.Context(), "INSERT INTO ledger VALUES ("+s.say("$1", "?", "?")+")")
		require.NoError(t, err)
		defer insert.Close()
		var last atomic.Int64
		for _, err := range parallel(tasks, func() error {
			return pooldriver.Do(t.Context(), func(ctx context.Context) error {
				for range each {
					id := last.Add(1)
					if _, err := insert.ExecContext(ctx, id); err != nil {
						return err
					}
					var n int
					err := p.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM ledger WHERE id = %d", id)).Scan(&n)
					if err != nil || n != 1 {
						return fmt.Errorf("row %d is there %d times: %w", id, n, err)
					}
				}
				return nil
			})
		}) {
			require.NoError(t, err)
		}
		want := make([]int, tasks*each)
		for i := range want {
			want[i] = i + 1
		}
		require.Equal(t, want, s.stored(t))
		p.requireNothingLeft(t)
	})
}

// awaitLockWaits returns when n connections of the account wait for a lock that
// others hold.
func (s stage) awaitLockWaits(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		open, err := s.account.Transactions(t.Context())
		waiting := 0
		for _, tx := range open {
			if tx.Waits {
				waiting++
			}
		}
		return err == nil && waiting == n
	}, 10*time.Second, 10*time.Millisecond, "nobody waits")
}

func TestTransactionsOfTwoTasksWaitForEachOthersLocks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, "CREATE TABLE balances (id integer PRIMARY KEY, amount integer)")
		mustExec(t, s.witness, "INSERT INTO balances VALUES (1, 100), (2, 100)")
		if s.name == "postgres" {
			mustExec(t, s.witness, "GRANT ALL ON balances TO PUBLIC")
		}
		p := s.open(t, 2)
		add := func(ctx context.Context, amount, to int) error {
			_, err := p.ExecContext(ctx, fmt.Sprintf("UPDATE balances SET amount = amount + %d WHERE id = %d", amount, to))
			return err
		}
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		first := p.mustBegin(ctx, t)
		require.NoError(t, add(ctx, -10, 1))
		done := make(chan error, 1)
		go func() {
			done <- pooldriver.InTx(t.Context(), p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
				if err := add(ctx, -20, 1); err != nil {
					return err
				}
				return add(ctx, 20, 2)
			})
		}()
		s.awaitLockWaits(t, 1)
		require.NoError(t, add(ctx, 10, 2))
		require.NoError(t, first.Commit())
		require.NoError(t, <-done)
		rows, err := s.witness.QueryContext(t.Context(), "SELECT amount FROM balances ORDER BY id")
		require.NoError(t, err)
		amounts, err := scanned[int](rows)
		require.NoError(t, err)
		require.Equal(t, []int{70, 130}, amounts)
	})
}

// TestAnErrorInATasksTransactionIsGoneForTheNextTask: on PostgreSQL it aborts
// the transaction, which the task leaves so.
func TestAnErrorInATasksTransactionIsGoneForTheNextTask(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, "CREATE TABLE strict_ledger (id integer NOT NULL)")
		if s.name == "postgres" {
			mustExec(t, s.witness, "GRANT ALL ON strict_ledger TO PUBLIC")
		}
		for _, failing := range []string{"SELECT id FROM missing", "INSERT INTO missing VALUES (1)", "INSERT INTO strict_ledger VALUES (NULL)"} {
			t.Run(failing, func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 1)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				p.mustBegin(ctx, t)
				p.mustExec(ctx, t, insertInto(1))
				id := p.served(ctx, t)
				_, err := p.ExecContext(ctx, failing)
				require.Error(t, err)
				_, err = p.ExecContext(ctx, insertInto(2))
				require.Equal(t, s.name == "postgres", err != nil, "%v", err)
				end()
				p.requireNothingLeft(t)

				require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
					require.Equal(t, id, p.served(ctx, t))
					require.Zero(t, p.count(ctx, t))
					p.mustExec(ctx, t, insertInto(3))
					require.Equal(t, []int{3}, s.stored(t), "it is in no transaction")
					return nil
				}))
				require.EqualValues(t, 1, p.connector.Stats().Pool.Creates)
			})
		}
	})
}

// TestATransactionOnAKilledConnectionIsLostUntilItHasEnded: then the same task,
// or another one, has a fresh connection in its place.
func TestATransactionOnAKilledConnectionIsLostUntilItHasEnded(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		for _, sameTask := range []bool{true, false} {
			t.Run(fmt.Sprintf("same task=%t", sameTask), func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 1)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx := p.mustBegin(ctx, t)
				p.mustExec(ctx, t, insertInto(1))
				id := p.backend(ctx, t)
				s.kill(t, id)
				_, err := tx.ExecContext(ctx, insertInto(2))
				require.Error(t, err)
				for range 3 {
					_, err = tx.ExecContext(ctx, insertInto(2))
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
					p.requireLost(ctx, t, means)
				}
				require.Empty(t, s.stored(t))
				if sameTask {
					_ = tx.Rollback()
				} else {
					end()
					require.Zero(t, p.lent())
					var endNext func()
					ctx, endNext = pooldriver.WithTask(t.Context())
					defer endNext()
				}
				require.NotEqual(t, id, p.backend(ctx, t))
				next := p.mustBegin(ctx, t)
				p.mustExec(ctx, t, insertInto(3))
				require.NoError(t, next.Commit())
				require.Equal(t, []int{3}, s.stored(t))
				p.requireNothingLeft(t)
			})
		}
	})
}

// TestATaskIsSparedWhenAnothersConnectionIsKilled: their statements wait for the
// same lock when the server ends one of them.
func TestATaskIsSparedWhenAnothersConnectionIsKilled(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, insertInto(1))
		lock, err := s.witness.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer lock.Rollback()
		_, err = lock.ExecContext(t.Context(), "UPDATE ledger SET id = 1")
		require.NoError(t, err)
		p := s.open(t, 2)
		results := make(chan error, 2)
		for range 2 {
			go func() {
				results <- pooldriver.Do(t.Context(), func(ctx context.Context) error {
					var id int
					if err := p.QueryRowContext(ctx, "SELECT id FROM ledger FOR UPDATE").Scan(&id); err != nil || id != 1 {
						return fmt.Errorf("%d: %w", id, err)
					}
					return nil
				})
			}()
		}
		s.awaitLockWaits(t, 2)
		ids, err := s.backends(t.Context())
		require.NoError(t, err)
		require.Len(t, ids, 2)
		s.kill(t, ids[0])
		require.Error(t, <-results)
		require.NoError(t, lock.Commit())
		require.NoError(t, <-results)

		next := p.backend(t.Context(), t)
		p.requireAtRest(t)
		left, err := s.backends(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{next}, left)
		if s.name == "postgres" { // It says that it ends connections: all are replaced as they come back.
			require.NotContains(t, ids, next)
		} else {
			require.Equal(t, ids[1], next)
		}
	})
}

func TestATransactionOfACancelledTaskIsUndoneAndItsPlaceFree(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx, end := pooldriver.WithTask(parent)
		defer end()
		w := &work{T: t, stagePool: p, ctx: ctx}
		tx := p.mustBegin(ctx, t)
		p.mustExec(ctx, t, insertInto(1))
		failed := w.sleepUntilFailed()
		cancel()
		require.Error(t, <-failed)
		require.NoError(t, pooldriver.InTx(t.Context(), p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
			require.Zero(t, p.count(ctx, t))
			_, err := p.ExecContext(ctx, insertInto(2))
			return err
		}))
		require.Error(t, tx.Commit())
		require.Equal(t, []int{2}, s.stored(t))
		p.requireNothingLeft(t)
	})
}

func TestAStatementCancelledByItsOwnContextDoesNotEndItsTask(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		for i := range 3 {
			own, cancel := context.WithCancel(ctx)
			w := &work{T: t, stagePool: p, ctx: own}
			failed := w.sleepUntilFailed()
			cancel()
			require.Error(t, <-failed)
			require.NoError(t, ctx.Err())
			p.mustExec(ctx, t, insertInto(i))
			require.Equal(t, i+1, p.count(ctx, t))
		}
		require.Equal(t, []int{0, 1, 2}, s.stored(t))
		if s.name != "sqlite" {
			counted, _, err := s.account.Backends(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, counted)
		}
	})
}

// TestRowsAndStatementsThatATaskLeavesOpenEndOnTheServer: the rows are more than
// fits on the way, so that the server is at them until it is told otherwise.
func TestRowsAndStatementsThatATaskLeavesOpenEndOnTheServer(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		for i := range 50 {
			mustExec(t, s.witness, insertInto(i))
		}
		const many = "SELECT a.id, repeat('x', 1000) FROM ledger a CROSS JOIN ledger b CROSS JOIN ledger c /* dated */"
		busy := func() (n int) {
			require.NoError(t, s.witness.QueryRowContext(t.Context(), s.say(
				"SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state <> 'idle'",
				"SELECT count(*) FROM information_schema.processlist WHERE user = ? AND command <> 'Sleep'", ""), s.account.User).Scan(&n))
			return n
		}
		for name, cancels := range map[string]bool{"ended": false, "cancelled": true} {
			t.Run(name, func(t *testing.T) {
				p := s.openURL(t, s.url("pool_max_conns=2", "pool_stmt_cache=0"))
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx, end := pooldriver.WithTask(parent)
				rows, err := p.QueryContext(ctx, many)
				require.NoError(t, err)
				require.True(t, rows.Next())
				stmt, err := p.PrepareContext(ctx, many)
				require.NoError(t, err)
				more, err := stmt.QueryContext(ctx)
				require.NoError(t, err)
				require.True(t, more.Next())
				require.Equal(t, 2, busy())

				if cancels {
					cancel()
				}
				end()
				require.Zero(t, p.lent())
				require.Eventually(t, func() bool { return busy() == 0 && p.datedLeft(t) == 0 }, slowMachine, 5*time.Millisecond)
				for _, rows := range []*sql.Rows{rows, more} {
					for rows.Next() {
					}
					require.Error(t, rows.Err())
				}
				require.NoError(t, p.Close())
				awaitBackends(t, s.account, 0)
			})
		}
	})
}

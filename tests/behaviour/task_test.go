package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestATaskHoldsNothingBetweenCleanStatements(t *testing.T) {
	_, db, c := openTasks(t, 4)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	for range 3 {
		mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
		require.Zero(t, lent(c))
	}
	require.Equal(t, 1, c.Stats().Pool.Count)
}

func TestStatementsOfATaskJoinItsTransaction(t *testing.T) {
	server, db, c := openTasks(t, 4)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
		mustExec(t, ctx, db, "INSERT INTO t VALUES (2)")
		require.Equal(t, 1, lent(c))
		require.Equal(t, 1, server.State().InTx())
		if commit {
			require.NoError(t, tx.Commit())
			require.Len(t, server.Table("t"), 2)
		} else {
			require.NoError(t, tx.Rollback())
			require.Empty(t, server.Table("t"))
		}
		require.Zero(t, lent(c), "the transaction was all that pinned")
	}
	require.Equal(t, 1, server.State().Opened)
}

func TestSessionStateHoldsForTheTaskAndForNobodyElse(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	mustExec(t, ctx, db, "SET a = 7")
	require.Equal(t, 1, lent(c), "pinned")
	require.EqualValues(t, 7, show(t, ctx, db, "a"))
	require.Nil(t, show(t, t.Context(), db, "a"), "not of the task")
	other, endOther := pooldriver.NewTask(ctx)
	require.Nil(t, show(t, other, db, "a"), "another task")
	endOther()
	require.Nil(t, show(t, pooldriver.Outside(ctx), db, "a"))
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	var a any
	require.NoError(t, conn.QueryRowContext(ctx, "SHOW a").Scan(&a))
	require.EqualValues(t, 7, a, "a sql.Conn of the task shares its session")
	require.NoError(t, conn.Close())
	end()
	require.Zero(t, lent(c))
	require.Nil(t, show(t, t.Context(), db, "a"))
	require.Zero(t, server.State().InTx())
}

func TestTheEndOfATaskRollsBackWhatItLeftOpen(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB){
		"transaction": func(t *testing.T, ctx context.Context, db *sql.DB) {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
		},
		"transaction of another context": func(t *testing.T, ctx context.Context, db *sql.DB) {
			tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
			require.NoError(t, err)
			mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
			t.Cleanup(func() {
				_, err := tx.Exec("INSERT INTO t VALUES (2)")
				require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
				require.ErrorIs(t, tx.Commit(), pooldriver.ErrTaskEnded)
			})
		},
		"transaction by hand": func(t *testing.T, ctx context.Context, db *sql.DB) {
			mustExec(t, ctx, db, "BEGIN")
			mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
		},
		"savepoints": func(t *testing.T, ctx context.Context, db *sql.DB) {
			for range 3 {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
			}
		},
		"connection": func(t *testing.T, ctx context.Context, db *sql.DB) {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			mustExec(t, ctx, conn, "BEGIN")
			mustExec(t, ctx, conn, "INSERT INTO t VALUES (1)")
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
		},
		"rows": func(t *testing.T, ctx context.Context, db *sql.DB) {
			rows, err := db.QueryContext(context.WithoutCancel(ctx), "SELECT n FROM numbers LIMIT 100")
			require.NoError(t, err)
			require.True(t, rows.Next())
			t.Cleanup(func() {
				require.False(t, rows.Next())
				require.ErrorIs(t, rows.Err(), pooldriver.ErrTaskEnded)
				_ = rows.Close()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			leave(t, ctx, db)
			require.Equal(t, 1, lent(c))
			end()
			require.Zero(t, server.State().InTx())
			require.Zero(t, server.State().OpenRows())
			require.Empty(t, server.Table("t"))
			require.Zero(t, lent(c))
			end()
			require.Equal(t, pooldriver.ErrTaskEnded, context.Cause(ctx))
			_, err := db.ExecContext(context.WithoutCancel(ctx), "INSERT INTO t VALUES (1)")
			require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
			mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
		})
	}
}

func TestATaskEndsWithItsContext(t *testing.T) {
	server, db, c := openTasks(t, 1)
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, end := pooldriver.WithTask(parent)
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	require.NoError(t, err)
	mustExec(t, t.Context(), tx, "INSERT INTO t VALUES (1)")
	why := errors.New("why")
	cancel(why)
	require.Eventually(t, func() bool { return lent(c) == 0 }, patience, time.Millisecond)
	require.Zero(t, server.State().InTx())
	require.Empty(t, server.Table("t"))
	_, err = db.ExecContext(context.WithoutCancel(ctx), "SELECT 1")
	require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
	require.ErrorIs(t, err, why)
	require.NoError(t, tx.Rollback(), "it is what has happened")
	end()
}

func TestATaskInsideATaskIsTheSameOne(t *testing.T) {
	_, db, _ := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "SET a = 1")
	inner, endInner := pooldriver.WithTask(context.WithValue(ctx, anyKey{}, 1))
	endInner()
	require.NoError(t, inner.Err())
	require.EqualValues(t, 1, show(t, inner, db, "a"))
	require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
		require.EqualValues(t, 1, show(t, ctx, db, "a"))
		return nil
	}))
	require.EqualValues(t, 1, show(t, ctx, db, "a"))
}

func TestDoEndsTheTaskItBeganAlsoByAPanic(t *testing.T) {
	server, db, c := openTasks(t, 1)
	require.PanicsWithValue(t, "boom", func() {
		_ = pooldriver.Do(t.Context(), func(ctx context.Context) error {
			_, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			panic("boom")
		})
	})
	require.Zero(t, server.State().InTx())
	require.Zero(t, lent(c))
}

func TestATaskTimeoutEndsTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.TaskTimeout = 30 * time.Millisecond })
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		_, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		<-ctx.Done()
		require.Eventually(t, func() bool { return lent(c) == 0 && server.State().InTx() == 0 }, patience, time.Millisecond)
		_, err = db.ExecContext(context.WithoutCancel(ctx), "SELECT 1")
		require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
		require.ErrorContains(t, err, "pool_task_timeout")
	})
}

func TestEndWaitsForAStatementThatRuns(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	require.NoError(t, err)
	gate := server.Block(fakedb.ConnExecCtx)
	done := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.WithoutCancel(ctx), "INSERT INTO t VALUES (1)")
		done <- err
	}()
	<-gate.Entered()
	ended := make(chan struct{})
	go func() { end(); close(ended) }()
	<-ctx.Done()
	select {
	case <-ended:
		t.Fatal("the end did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	gate.Open()
	require.NoError(t, <-done)
	<-ended
	require.Zero(t, server.State().InTx())
	require.Empty(t, server.Table("t"))
	require.Zero(t, lent(c))
	require.NoError(t, tx.Rollback(), "it is what has happened")
}

func TestParallelStatementsOfATaskRunInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, _ := openTasks(t, 10)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		var wg sync.WaitGroup
		began := time.Now()
		for range 10 {
			wg.Go(func() {
				var one int
				assert.NoError(t, db.QueryRowContext(ctx, "SELECT /*+ sleep 100ms */ 1").Scan(&one))
			})
		}
		wg.Wait()
		require.Less(t, time.Since(began), 900*time.Millisecond)
		require.Equal(t, 10, server.State().Opened)
	})
}

func TestTasksAtOnceUseNoMoreConnectionsThanThereMayBe(t *testing.T) {
	server, db, c := openTasks(t, 3)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			assert.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
				if _, err := db.ExecContext(ctx, fmt.Sprintf("SET a = %d", i)); err != nil {
					return err
				}
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
					return err
				}
				if i%2 == 0 {
					return tx.Rollback()
				}
				if err := tx.Commit(); err != nil {
					return err
				}
				var a any
				if err := db.QueryRowContext(ctx, "SHOW a").Scan(&a); err != nil {
					return err
				}
				assert.EqualValues(t, i, a)
				return nil
			}))
		})
	}
	wg.Wait()
	require.LessOrEqual(t, server.State().MaxOpen, 3)
	require.Zero(t, lent(c))
	require.Zero(t, server.State().InTx())
}

func TestTasksOfTheProgramsOwnContextsAreAdopted(t *testing.T) {
	type request struct{}
	type id int
	var lifetimes sync.Map
	_, db, c := openTasks(t, 2, func(c *pooldriver.Config) {
		c.TaskKey = func(ctx context.Context) (any, context.Context) {
			v, ok := ctx.Value(request{}).(id)
			if !ok {
				return nil, nil
			}
			lifetime, _ := lifetimes.Load(v)
			return v, lifetime.(context.Context)
		}
	})
	first, cancel := context.WithCancel(t.Context())
	lifetimes.Store(id(1), first)
	ctx := context.WithValue(t.Context(), request{}, id(1))
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	mustExec(t, ctx, conn, "SET a = 1")
	require.Nil(t, show(t, context.WithValue(ctx, anyKey{}, 1), db, "a"), "the task shares nothing")
	require.Len(t, c.Tasks(), 1)

	query, endQuery := context.WithTimeout(ctx, time.Millisecond)
	<-query.Done()
	endQuery()
	var a any
	require.NoError(t, conn.QueryRowContext(ctx, "SHOW a").Scan(&a))
	require.EqualValues(t, 1, a, "a query's timeout does not end the task")

	cancel()
	require.Eventually(t, func() bool { return lent(c) == 0 }, patience, time.Millisecond)
	lifetimes.Store(id(1), t.Context())
	require.ErrorIs(t, conn.PingContext(ctx), pooldriver.ErrTaskEnded)
	require.Eventually(t, func() bool {
		var a any
		err := db.QueryRowContext(ctx, "SHOW a").Scan(&a)
		return err == nil && a == nil
	}, patience, time.Millisecond, "the key begins a new task")
	_ = conn.Close()
}

// A key whose task its timeout has ended does not begin another one behind the
// program, which counts on the session, until its lifetime has ended. One without an
// end leaves the timeout as the key's end.
func TestAKeysTaskStaysEndedForItsLifetime(t *testing.T) {
	type key struct{}
	for _, endless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 2, quiet, ambient(pooldriver.AmbientJoin), func(c *pooldriver.Config) { c.TaskTimeout = time.Second },
				func(c *pooldriver.Config) {
					c.TaskKey = func(ctx context.Context) (any, context.Context) {
						lifetime, _ := ctx.Value(key{}).(context.Context)
						if lifetime == nil {
							return nil, nil
						}
						return "same", lifetime
					}
				})
			request, cancel := context.WithCancel(t.Context())
			defer cancel()
			if endless {
				request = context.Background()
			}
			ctx := context.WithValue(request, key{}, request)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, db), "in the transaction")
			time.Sleep(2 * time.Second)
			if endless {
				require.NoError(t, insertTwo(ctx, db))
				require.Len(t, server.Table("t"), 1)
			} else {
				require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTaskEnded)
				require.Empty(t, server.Table("t"))
			}
			require.Error(t, tx.Commit())
			cancel()
			synctest.Wait()
			next := context.WithValue(t.Context(), key{}, t.Context())
			require.NoError(t, insertTwo(next, db), "the key is used again")
			time.Sleep(2 * time.Second)
			require.Zero(t, lent(c))
		})
	}
}

// TestAStatementThatWaitsUsesItsTasksConnectionAsSoonAsThatIsFree: the task's *sql.Conn keeps the
// only connection, but uses it no more.
func TestAStatementThatWaitsUsesItsTasksConnectionAsSoonAsThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, _ := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		conn := takeConn(t, ctx, db)
		gate := held(server, "(7)")
		busy := make(chan error, 1)
		go func() { _, err := conn.ExecContext(ctx, "INSERT INTO t VALUES (7)"); busy <- err }()
		<-gate.Entered()
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { assert.NoError(t, insertTwo(ctx, db)) })
		}
		synctest.Wait()
		time.Sleep(time.Millisecond) // and not a multiple of the pool's look at those who wait
		free := time.Now()
		gate.Open()
		waiting.Wait()
		require.Zero(t, time.Since(free))
		require.NoError(t, <-busy)
	})
}

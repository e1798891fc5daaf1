package behaviour

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// nest reads rows and, inside the loop, does the same one level deeper.
func nest(ctx context.Context, db *sql.DB, depth int) (rowsSeen int, _ error) {
	rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 3")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		var n int
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
		if n != i {
			return 0, sql.ErrNoRows
		}
		rowsSeen++
		if depth == 0 {
			if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
				return 0, err
			}
			continue
		}
		deeper, err := nest(ctx, db, depth-1)
		if err != nil {
			return 0, err
		}
		rowsSeen += deeper
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
			return 0, err
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
	}
	return rowsSeen, rows.Err()
}

func TestNestedStatementsOfTasksCompleteOnOneConnection(t *testing.T) {
	for _, inTx := range []bool{false, true} {
		server, db, c := openTasks(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				run := func(ctx context.Context) error {
					n, err := nest(ctx, db, 2)
					assert.Equal(t, 3+9+27, n)
					return err
				}
				if inTx {
					assert.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return run(ctx) }))
				} else {
					assert.NoError(t, pooldriver.Do(ctx, run))
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, server.State().MaxOpen)
		require.Len(t, server.Table("t"), 20*(27+3+9))
		require.Zero(t, lent(c))
		require.Zero(t, c.Stats().BufferedBytes)
	}
}

func TestNestedQueriesWithoutTasksCompleteByTakingRowsBack(t *testing.T) {
	for _, most := range []int{1, 10} {
		server, db, c := openTasks(t, most)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 3")
				if !assert.NoError(t, err) {
					return
				}
				defer rows.Close()
				for rows.Next() {
					var n int
					assert.NoError(t, db.QueryRowContext(ctx, "SELECT 1").Scan(&n))
				}
				assert.NoError(t, rows.Err())
			})
		}
		wg.Wait()
		require.LessOrEqual(t, server.State().MaxOpen, most)
		require.Zero(t, lent(c))
		if most == 1 { // with more it may be nobody's turn to starve
			require.NotZero(t, c.Stats().Reclaims)
		}
		require.Zero(t, c.Stats().BufferedBytes)
	}
}

func TestAnIndependentTransactionInsideOneOnTheOnlyConnectionIsAnError(t *testing.T) {
	for name, separate := range map[string]func(context.Context) (context.Context, func()){
		"new task": pooldriver.NewTask,
		"outside":  func(ctx context.Context) (context.Context, func()) { return pooldriver.Outside(ctx), func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, db, c := openTasks(t, 1, deadlockAfter(20*time.Millisecond))
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				other, endOther := separate(ctx)
				defer endOther()
				began := time.Now()
				_, err = db.BeginTx(other, nil)
				require.ErrorIs(t, err, pooldriver.ErrDeadlock)
				require.ErrorContains(t, err, "(transaction, for ")
				require.Less(t, time.Since(began), time.Second)
				require.NoError(t, tx.Commit())
				tx, err = db.BeginTx(other, nil)
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
				require.Zero(t, lent(c))
			})
		})
	}
}

func TestWhoWaitsWhileTheHolderWorksIsNotTakenForPartOfACycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 1, deadlockAfter(200*time.Millisecond))
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		audit := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(pooldriver.Outside(ctx), "INSERT INTO t VALUES (1)")
			audit <- err
		}()
		for began := time.Now(); time.Since(began) < 700*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			mustExec(t, ctx, tx, "INSERT INTO t VALUES (2)")
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, <-audit)
	})
}

func TestAsFewAsBreakTheCycleAreRefused(t *testing.T) {
	_, db, c := openTasks(t, 10, deadlockAfter(20*time.Millisecond))
	var begun, done sync.WaitGroup
	begun.Add(10)
	var mu sync.Mutex
	refused := 0
	for range 10 {
		done.Go(func() {
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			outer, err := db.BeginTx(ctx, nil)
			begun.Done()
			if !assert.NoError(t, err) {
				return
			}
			begun.Wait()
			other, endOther := pooldriver.NewTask(ctx)
			defer endOther()
			inner, err := db.BeginTx(other, nil)
			if err != nil {
				assert.ErrorIs(t, err, pooldriver.ErrDeadlock)
				mu.Lock()
				refused++
				mu.Unlock()
				assert.NoError(t, outer.Rollback())
				return
			}
			assert.NoError(t, inner.Commit())
			assert.NoError(t, outer.Commit())
		})
	}
	done.Wait()
	require.Equal(t, 1, refused)
	require.Zero(t, lent(c))
}

func TestRowsThatDoNotFitAreAnErrorOfTheNestedStatementOnly(t *testing.T) {
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = 100 })
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 50")
		require.NoError(t, err)
		seen := 0
		for rows.Next() {
			var n int
			require.NoError(t, rows.Scan(&n))
			require.Equal(t, seen, n)
			seen++
			_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			if seen < 45 {
				require.ErrorIs(t, err, pooldriver.ErrNestedBuffer)
			}
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 50, seen)
		require.NoError(t, rows.Close())
		_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		return err
	}))
	require.Zero(t, c.Stats().BufferedBytes)
}

// TestRowsThatAreTooLargeAreNamedInTheErrorOfWhoWaits, also without a task.
func TestRowsThatAreTooLargeAreNamedInTheErrorOfWhoWaits(t *testing.T) {
	_, db, _ := openTasks(t, 1, func(c *pooldriver.Config) {
		c.NestedBuffer, c.NestedBufferTotal, c.AcquireTimeout = 1<<10, 1<<10, 500*time.Millisecond
	})
	rows, err := db.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 100000")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, pool.ErrTimeout)
	require.ErrorContains(t, err, "rows that are open are larger than what may be read into memory to free their connection (pool_nested_buffer=1024 bytes")
}

// The race detector sees it if a statement whose transaction is gone looks at the connection on which it was.
func TestTransactionsOfManyGoroutinesOfATaskEndWithTheirContexts(t *testing.T) {
	_, db, c := openTasks(t, 4)
	ctx, end := pooldriver.WithTask(t.Context())
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			of := ctx
			if i%2 == 0 {
				of = t.Context()
			}
			for n := range 100 {
				ctx, cancel := context.WithTimeout(of, time.Duration((i+n)%20)*time.Millisecond)
				if tx, err := db.BeginTx(ctx, nil); err == nil {
					_, _ = tx.Exec("INSERT INTO t VALUES (1)")
					_ = tx.Commit()
				}
				cancel()
			}
		})
	}
	all.Wait()
	end()
	require.Eventually(t, func() bool { return c.Stats().Pool.Lent == 0 }, time.Minute, time.Millisecond)
}

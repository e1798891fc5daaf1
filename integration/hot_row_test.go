package integration

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// database/sql asks a result, and closes a statement, under the lock of the virtual connection that
// gave it. Here somebody else waits for the row that the task has locked.

const changeHotRow = "UPDATE ledger SET id = id + 1"

// TestATaskAsksItsResultsWhileOthersWaitForItsRow is two requests which change one row, each in a
// transaction that its statements join.
func TestATaskAsksItsResultsWhileOthersWaitForItsRow(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, insertInto(0))
		p := s.open(t, 10)
		change := func(meanwhile func()) error {
			return pooldriver.Do(t.Context(), func(ctx context.Context) error {
				return begun(ctx, p.DB, func(*sql.Tx) error {
					res, err := p.ExecContext(ctx, changeHotRow)
					if err != nil {
						return err
					}
					meanwhile()
					if n, err := res.RowsAffected(); err != nil || n != 1 {
						return errors.Join(err, errors.New("not one row"))
					}
					return nil
				})
			})
		}
		second := make(chan error, 1)
		first := make(chan error, 1)
		go func() {
			first <- change(func() {
				go func() { second <- change(func() {}) }()
				s.awaitLockWaits(t, 1)
			})
		}()
		for _, done := range []chan error{first, second} {
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(20 * time.Second):
				t.Fatal("RowsAffected waits for somebody who waits for this task's row")
			}
		}
		require.Equal(t, []int{2}, s.stored(t))
	})
}

// TestTasksShareAHotRow has 64 requests at a time which change one row, for 60 s or for three. Each
// asks its results and closes a statement while it has the row.
func TestTasksShareAHotRow(t *testing.T) {
	const requests, patience = 64, 2 * time.Second
	length := time.Duration(randomtest.Rounds(3, 60)) * time.Second
	eachStage(t, func(t *testing.T, s stage) {
		mustExec(t, s.witness, insertInto(0))
		p := s.open(t, 10)
		if s.name == "sqlite" { // which has one writer: the others wait for the connection
			p = s.open(t, 1)
		}
		r := hotRow{stagePool: p}
		pulse := feelPulse(t, s.witness)
		until := time.Now().Add(length)
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				for time.Now().Before(until) {
					if err := r.request(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		t.Logf("%d requests, an answer took %v at most", r.done.Load(), time.Duration(r.longest.Load()))
		require.EqualValues(t, []int{int(2 * r.done.Load())}, s.stored(t))
		require.Less(t, time.Duration(r.longest.Load()), patience+3*pulse.late(), "an answer waits for others")
	})
}

// hotRow counts the requests for the row.
type hotRow struct {
	stagePool
	done    atomic.Int64
	longest atomic.Int64 // time in ns that the program waited for an answer which it had
}

func (r *hotRow) request(ctx context.Context) error {
	err := pooldriver.Do(ctx, func(ctx context.Context) error {
		return begun(ctx, r.DB, func(*sql.Tx) error { return r.change(ctx) })
	})
	if err == nil {
		r.done.Add(1)
	}
	return err
}

// change changes the row twice: by a text, and by a prepared statement.
func (r *hotRow) change(ctx context.Context) error {
	byText, err := r.ExecContext(ctx, changeHotRow)
	if err != nil {
		return err
	}
	stmt, err := r.PrepareContext(ctx, changeHotRow)
	if err != nil {
		return err
	}
	byStmt, err := stmt.ExecContext(ctx)
	begun := time.Now()
	err = errors.Join(err, stmt.Close())
	for _, res := range []sql.Result{byText, byStmt} {
		if err != nil {
			break
		}
		var n int64
		if n, err = res.RowsAffected(); err == nil && n != 1 {
			err = errors.New("not one row")
		}
	}
	for took, seen := int64(time.Since(begun)), r.longest.Load(); took > seen && !r.longest.CompareAndSwap(seen, took); {
		seen = r.longest.Load()
	}
	return err
}

package integration

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// writers insert one row after the other, and count what was acknowledged.
type writers struct {
	cancel       context.CancelFunc
	running      sync.WaitGroup
	acknowledged atomic.Int64
	unclear      atomic.Int64 // it may have been executed, or not
}

func startWriters(t *testing.T, db *sql.DB, n int) *writers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{cancel: cancel}
	for range n {
		w.running.Go(func() {
			for ctx.Err() == nil {
				if err := w.write(db); err != nil {
					time.Sleep(10 * time.Millisecond) // as a program would
				}
			}
		})
	}
	t.Cleanup(func() { w.stop() })
	return w
}

// write inserts a row in a transaction.
func (w *writers) write(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO written VALUES (1)"); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		w.unclear.Add(1)
		return err
	}
	w.acknowledged.Add(1)
	return nil
}

// await returns when n more writes have been acknowledged, and how long that took.
func (w *writers) await(t *testing.T, n int64) time.Duration {
	t.Helper()
	from, began := w.acknowledged.Load(), time.Now()
	require.Eventually(t, func() bool { return w.acknowledged.Load() >= from+n }, slowMachine, time.Millisecond)
	return time.Since(began)
}

func (w *writers) stop() (acknowledged int) {
	w.cancel()
	w.running.Wait()
	return int(w.acknowledged.Load())
}

// backSoon is how long a service may take to be back. It needs a few dials, which are slow
// on a busy machine, whose usual time for as many writes is added. If the pool waited for a host's pause or for a timeout, it would need 5 s.
const backSoon = 4 * time.Second

// TestAHostThatIsKilledUnderLoadIsLeftAndComesBack: both servers take writes, so
// no role has to move, and the service is back as soon as the pool has dialled.
func TestAHostThatIsKilledUnderLoadIsLeftAndComesBack(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		db, c := p.open(t, list(p.a.Addr, p.b.Addr), "target_session_attrs=read-write", "pool_max_conns=10", "pool_health_check_period=200ms")
		w := startWriters(t, db, 50)
		usual := w.await(t, 200)
		require.Equal(t, "a", whose(t, db))
		before := w.acknowledged.Load()
		p.a.Kill(t)
		killed := time.Now()
		w.await(t, 200)
		t.Logf("200 writes were acknowledged %v after the kill", time.Since(killed).Round(time.Millisecond))
		require.Less(t, time.Since(killed), backSoon+3*usual)
		require.Equal(t, "b", whose(t, db))
		require.LessOrEqual(t, p.backends(t, p.b), 10)

		p.a.Start(t)
		// The pause of a dead host is 5 s at the most; new connections go to the
		// first of the list again.
		require.Eventually(t, func() bool {
			c.Flush()
			return whose(t, db) == "a"
		}, slowMachine, 50*time.Millisecond)
		acknowledged, unclear := w.stop(), int(w.unclear.Load())
		there := p.rows(t, p.a) + p.rows(t, p.b)
		require.GreaterOrEqual(t, there, acknowledged, "no acknowledged commit is lost")
		require.LessOrEqual(t, there, acknowledged+unclear, "nothing was executed twice")
		require.Positive(t, before)
	}, testbed.WithRestart())
}

package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestFunctionsThatWriteAreCalledOnce: the program's own functions, behind whatever hides them, beside reads that are pipelined, under
// kills and locks. A call that was answered has written once, one that failed once or not at all.
func TestFunctionsThatWriteAreCalledOnce(t *testing.T) {
	t.Parallel()
	calls := int64(randomtest.Rounds(1500, 1_000_000))
	most := calls + 30_000 // until a session that was at work was killed: a fast machine is done before
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	plain := a.OpenBare(t)
	for _, text := range []string{
		"CREATE TABLE held (n int)",
		fmt.Sprintf("CREATE TABLE items AS SELECT i AS id, i AS n FROM generate_series(1, %d) i", most),
		"CREATE UNIQUE INDEX ON items (id)",
	} {
		mustExec(t, plain, text)
	}
	makeWriters(t, plain, "PERFORM n FROM held; INSERT INTO written VALUES (i); RETURN i;") // it waits while somebody has locked held
	mustExec(t, plain, "ANALYZE")
	c := pooldriver.New(a.URL("pool_max_conns=4", "pool_pipeline=16"))
	db := sql.OpenDB(c)
	defer db.Close()

	var next, failed, reads, kills atomic.Int64
	answered := make([]atomic.Bool, most+1)
	seed := randomtest.Seed(t)
	var callers sync.WaitGroup
	for g := range 64 {
		random := rand.New(rand.NewPCG(seed, uint64(g)))
		callers.Go(func() {
			for id := next.Add(1); id <= calls || id <= most && (kills.Load() == 0 || c.Stats().Pipelined == 0); id = next.Add(1) {
				var n int64
				for range random.IntN(4) {
					if db.QueryRowContext(t.Context(), ofItems, id).Scan(&n) == nil {
						reads.Add(1)
					}
				}
				err := db.QueryRowContext(t.Context(), textsThatWrite[random.IntN(len(textsThatWrite))], id).Scan(&n)
				if err != nil {
					failed.Add(1)
				} else {
					answered[id].Store(true)
				}
			}
		})
	}
	stop := disturb(t, plain, &kills)
	callers.Wait()
	stop()

	stored := make([]int, most+1)
	rows, err := plain.Query("SELECT n, count(*) FROM written GROUP BY n")
	require.NoError(t, err)
	for rows.Next() {
		var id, n int
		require.NoError(t, rows.Scan(&id, &n))
		stored[id] = n
	}
	require.NoError(t, rows.Err())
	twice, lost := 0, 0
	for id, n := range stored {
		if n > 1 {
			twice++
		}
		if n == 0 && answered[id].Load() {
			lost++
		}
	}
	s := c.Stats()
	t.Logf("%d calls, %d failed, %d reads, %d kills, %d pipelined, %d repeats", next.Load()-64, failed.Load(), reads.Load(), kills.Load(), s.Pipelined, s.PipelineRepeats)
	require.Zero(t, twice, "written more than once")
	require.Zero(t, lost, "answered and not written")
	require.NotZero(t, kills.Load())
	require.NotZero(t, s.Pipelined)
	require.NotZero(t, reads.Load())
}

// disturb kills a session, or holds a lock for as long as a pipeline's rescue needs, again and again, until stop is called.
func disturb(t *testing.T, plain *sql.DB, kills *atomic.Int64) (stop func()) {
	stopped := make(chan struct{})
	pause := 300 * time.Millisecond
	if randomtest.Long() { // a kill costs all four logins
		pause = 2 * time.Second
	}
	var all sync.WaitGroup
	all.Go(func() {
		for round := 0; ; round++ {
			select {
			case <-stopped:
				return
			case <-time.After(pause):
			}
			if round%4 == 1 {
				if tx, err := plain.Begin(); err == nil {
					_, err = tx.Exec("LOCK TABLE held")
					time.Sleep(60 * time.Millisecond)
					if err = errors.Join(err, tx.Commit()); err != nil {
						t.Error(err)
					}
				}
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			var killed int64
			if plain.QueryRowContext(ctx, "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE 'SELECT%id = $1%' ORDER BY random() LIMIT 1) one").Scan(&killed) == nil {
				kills.Add(killed)
			}
			cancel()
		}
	})
	return func() { close(stopped); all.Wait() }
}

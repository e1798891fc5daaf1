package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// TestParallelQueriesOfOneTaskTakeAsManyConnectionsAsThereAre measures with the
// connections already open.
func TestParallelQueriesOfOneTaskTakeAsManyConnectionsAsThereAre(t *testing.T) {
	const max, each = 10, 100 * time.Millisecond
	onEachServerInTurn(t, func(t *testing.T, d database) {
		db, connector := d.open(t, max, func(c *pooldriver.Config) { c.MinConns = max })
		require.NoError(t, connector.Warm(t.Context()))
		query := sleepFor(d.account.Server.Engine, each)
		for _, c := range []struct {
			queries int
			within  time.Duration
		}{{max, max * each / 2}, {3 * max, 3 * max * each / 2}} {
			t.Run(fmt.Sprintf("%d queries", c.queries), func(t *testing.T) {
				inTime(t, c.within, func() (took time.Duration) {
					require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
						began := time.Now()
						for _, err := range parallel(c.queries, func() error {
							n, err := count(ctx, db, query)
							if err == nil && n != 1 {
								err = fmt.Errorf("%d rows", n)
							}
							return err
						}) {
							require.NoError(t, err)
						}
						took = time.Since(began)
						require.GreaterOrEqual(t, took, each*time.Duration(c.queries/max))
						return nil
					}))
					return took
				})
				d.requireRest(t, connector)
			})
		}
	})
}

// TestSingleQueriesAreNotStarvedByLoops: tasks that query for each of their rows
// keep all connections busy; who wants one for a moment has its turn.
func TestSingleQueriesAreNotStarvedByLoops(t *testing.T) {
	const loops, size, singles, longest = 100, 4, 50, time.Second
	onEachDSNInTurn(t, func(t *testing.T, d database) {
		d.setUp(t)
		db, connector := d.open(t, size)
		end := d.guard(t, size)
		ctx, cancel := context.WithTimeout(t.Context(), 5*slowMachine)
		defer cancel()
		var stop atomic.Bool
		var completed atomic.Int64
		looping := async(func() error {
			return errors.Join(parallel(loops, func() error {
				for !stop.Load() {
					if err := pooldriver.Do(ctx, func(ctx context.Context) error {
						return rowsInRows(ctx, db, d, newGate(1))
					}); err != nil {
						return err
					}
					completed.Add(1)
				}
				return nil
			})...)
		})
		defer stop.Store(true)
		require.Eventually(t, func() bool { return completed.Load() >= loops }, slowMachine, time.Millisecond)
		// In a fair queue each waits for one statement of each of the loops.
		var slowest time.Duration
		pulse, begun, acquired := feelPulse(t, nil), time.Now(), connector.Stats().Pool.Acquires
		for range singles {
			began := time.Now()
			n, err := count(ctx, db, "SELECT id FROM things")
			require.NoError(t, err)
			require.Equal(t, things, n)
			slowest = max(slowest, time.Since(began))
		}
		stop.Store(true)
		require.NoError(t, <-looping)
		t.Logf("slowest of %d single queries: %v; loops completed beside them: %d", singles, slowest, completed.Load())
		fair := time.Since(begun) * loops / time.Duration(connector.Stats().Pool.Acquires-acquired)
		require.Less(t, slowest, max(longest, 10*fair)+3*pulse.late())
		end()
		d.requireRest(t, connector)
	})
}

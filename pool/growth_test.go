package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slow is how long a create takes on a server that is far away.
const slow = 300 * time.Millisecond

func slowly(context.Context) error { time.Sleep(slow); return nil }

// comeAtOnce has n acquirers come at once, and hold a resource for a time. It returns when all are done.
func comeAtOnce(t *testing.T, p *Pool[*item], n int, holds time.Duration) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			l, err := p.Acquire(t.Context())
			if assert.NoError(t, err) {
				time.Sleep(holds)
				assert.NoError(t, l.Release())
			}
		})
	}
	all.Wait()
}

func TestAColdBurstOpensAsManyAsWaitWhenTheServerTakesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holds = 1200 * time.Millisecond
		p, s := (&shop{create: slowly}).sell(t, quiet(32))
		begun := time.Now()
		comeAtOnce(t, p, 32, holds)
		plain := slow + holds // database/sql dials 32 at once
		t.Logf("%v, database/sql %v", time.Since(begun), plain)
		require.LessOrEqual(t, time.Since(begun), plain*13/10)
		require.Equal(t, 32, s.madeSoFar())
	})
}

// TestABurstOfShortHoldsOpensAsFewAsByDoubling: each number is what a pool opens that only doubles.
func TestABurstOfShortHoldsOpensAsFewAsByDoubling(t *testing.T) {
	for _, c := range []struct {
		holds      time.Duration
		cold, warm int
	}{{time.Millisecond, 8, 10}, {5 * time.Millisecond, 8, 10}, {20 * time.Millisecond, 8, 10}} {
		synctest.Test(t, func(t *testing.T) {
			p, s := (&shop{create: slowly}).sell(t, quiet(100))
			comeAtOnce(t, p, 50, c.holds)
			synctest.Wait()
			time.Sleep(2 * slow)
			require.Equal(t, c.cold, s.madeSoFar(), "cold, holds of %v", c.holds)
		})
		synctest.Test(t, func(t *testing.T) {
			cfg := quiet(100)
			cfg.Min = 5
			p, s := (&shop{create: slowly}).sell(t, cfg)
			require.NoError(t, p.Warm(t.Context()))
			comeAtOnce(t, p, 55, c.holds)
			time.Sleep(2 * slow)
			require.Equal(t, c.warm, s.madeSoFar(), "warm, holds of %v", c.holds)
		})
	}
}

func TestABurstToAServerThatRefusesEveryLoginTriesFour(t *testing.T) {
	for _, warm := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			var tries atomic.Int32
			refuses := false
			cfg := quiet(32)
			cfg.Min = warm
			cfg.Denied = func(error) bool { return true }
			p, _ := (&shop{create: func(ctx context.Context) error {
				if !refuses {
					return nil
				}
				tries.Add(1)
				_ = slowly(ctx)
				return errBroken
			}}).sell(t, cfg)
			require.NoError(t, p.Warm(t.Context()))
			refuses = true
			held := mustAll(t, p, warm)
			ctx, cancel := context.WithTimeout(t.Context(), slow+slow/2)
			defer cancel()
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					_, err := p.Acquire(ctx)
					assert.Error(t, err)
				})
			}
			all.Wait()
			require.EqualValues(t, 4, tries.Load())
			for _, l := range held {
				require.NoError(t, l.Release())
			}
		})
	}
}

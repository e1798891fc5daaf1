package pool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWarmFillsUpToMinAndMinIdle(t *testing.T) {
	for _, c := range []struct{ min, minIdle, lent, want int }{
		{3, 0, 0, 3}, {0, 2, 0, 2}, {3, 3, 0, 3}, {3, 2, 2, 4}, {0, 5, 3, 5}, {0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := quiet(5)
			cfg.Min, cfg.MinIdle = c.min, c.minIdle
			p, _ := sell(t, cfg)
			require.NoError(t, p.Warm(t.Context()))
			leases := mustAll(t, p, c.lent)
			require.NoError(t, p.Warm(t.Context()))
			st := p.Stats()
			require.Equal(t, c.want, st.Count)
			require.Equal(t, c.want-c.lent, st.Idle)
			require.EqualValues(t, c.lent, st.Acquires, "warming is no acquire")
			for _, l := range leases {
				require.NoError(t, l.Release())
			}
		})
	}
}

func TestWarmStopsAtTheFirstErrorAndReportsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for broken, opened := range map[int32]int{1: 0, 3: 8} {
			var tries atomic.Int32
			cfg := quiet(20)
			cfg.Min = 20
			p, s := (&shop{create: func(context.Context) error {
				if tries.Add(1) == broken {
					return errBroken
				}
				return nil
			}}).sell(t, cfg)
			require.ErrorIs(t, p.Warm(t.Context()), errBroken)
			synctest.Wait()
			require.Equal(t, opened, s.madeSoFar())
			require.EqualValues(t, opened+1, tries.Load())
			require.Equal(t, opened, p.Stats().Idle, "what was opened stays")
		}
	})
}

func TestWarmOpensEightAtOnceAfterTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(33)
		cfg.Min = 33
		p, _ := (&shop{create: slowly}).sell(t, cfg)
		begun := time.Now()
		require.NoError(t, p.Warm(t.Context()))
		require.Equal(t, 5*slow, time.Since(begun), "1 and 4 times 8")
		require.Equal(t, 33, p.Stats().Idle)
	})
}

func TestWarmWaitsForCreatesOfOthersAndForItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		cfg := quiet(2)
		cfg.Min = 2
		p, _ := (&shop{create: g.pass}).sell(t, cfg)
		l := line{t: t, p: p}
		q := l.join() // the first use starts both creates
		require.Equal(t, 2, p.Stats().Creating)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Warm(ctx), context.DeadlineExceeded)
		warm := make(chan error, 1)
		go func() { warm <- p.Warm(context.Background()) }()
		g <- nil
		synctest.Wait()
		require.Empty(t, warm)
		g <- nil
		require.NoError(t, <-warm)
		require.NoError(t, q.lease.Release())
	})
}

func TestWarmThatIsCancelledLeavesItsCreateToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		cfg := quiet(1)
		cfg.Min = 1
		p, s := (&shop{create: g.pass}).sell(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Warm(ctx), context.DeadlineExceeded)
		g <- nil
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Idle)
		require.Equal(t, 1, s.madeSoFar())
	})
}

func TestResizeUpServesWaitersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		require.NoError(t, p.Resize(2))
		synctest.Wait()
		require.NoError(t, q.err)
		require.Equal(t, 2, p.Stats().Max)
		require.NoError(t, q.lease.Release())
		require.NoError(t, held.Release())
	})
}

func TestResizeDownDestroysIdleOnesAndThenThoseThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(5))
		leases := mustAll(t, p, 5)
		require.NoError(t, leases[0].Release())
		require.NoError(t, leases[1].Release())
		require.NoError(t, p.Resize(2))
		synctest.Wait()
		require.Len(t, s.gone(), 2)
		require.Equal(t, 3, p.Stats().Count)
		l := line{t: t, p: p}
		q := l.join()
		require.NoError(t, leases[2].Release())
		synctest.Wait()
		require.False(t, q.isDone(), "none new until it fits")
		require.Equal(t, 2, p.Stats().Count)
		require.NoError(t, leases[3].Release())
		synctest.Wait()
		require.NoError(t, q.err)
		require.Equal(t, leases[3].Value(), q.lease.Value())
		require.Equal(t, 5, s.madeSoFar())
		require.EqualValues(t, 3, p.Stats().Destroyed.Resized)
		require.NoError(t, q.lease.Release())
		require.NoError(t, leases[4].Release())
		require.Equal(t, 2, p.Stats().Idle)
	})
}

func TestResizeBelowOneIsAnError(t *testing.T) {
	p, _ := sell(t, quiet(1))
	require.EqualError(t, p.Resize(0), "pool: resize to 0: must be at least 1")
}

func TestResizeBelowMinLowersItUntilItGrowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(4)
		cfg.Min = 3
		p, _ := sell(t, cfg)
		require.NoError(t, p.Warm(t.Context()))
		require.NoError(t, p.Resize(1))
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Count)
		require.NoError(t, p.Resize(4))
		synctest.Wait()
		require.Equal(t, 3, p.Stats().Count)
	})
}

func TestFlushReplacesIdleOnesAtOnceAndBorrowedOnesAsTheyComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.Min = 2
		p, s := sell(t, cfg)
		leases := mustAll(t, p, 2)
		require.NoError(t, leases[0].Release())
		p.Flush()
		synctest.Wait()
		require.Equal(t, []int{leases[0].Value().id}, s.gone())
		require.Equal(t, 2, p.Stats().Count, "Min is kept")
		require.True(t, leases[1].Valid(), "nobody is interrupted")
		require.NoError(t, leases[1].Release())
		synctest.Wait()
		require.Len(t, s.gone(), 2)
		require.EqualValues(t, 2, p.Stats().Destroyed.Flushed)
		require.Equal(t, 2, p.Stats().Idle)
		cycle(t, p, 2)
		require.Len(t, s.gone(), 2, "the new ones stay")
	})
}

func TestAFlushByACreateSparesWhatItCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Pool[*item]
		shop := &shop{create: func(ctx context.Context) error {
			p.FlushOthers(ctx)
			return nil
		}}
		p, _ = shop.sell(t, quiet(2))
		leases := mustAll(t, p, 2) // the second create replaces what the first has made
		require.NoError(t, leases[1].Release())
		require.NoError(t, leases[0].Release())
		synctest.Wait()
		require.Equal(t, []int{leases[0].Value().id}, shop.gone())
		cycle(t, p, 1)
		require.Len(t, shop.gone(), 1)
	})
}

func TestResourceBeingCreatedDuringAFlushIsLentOnceAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, s := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		q := l.join()
		p.Flush()
		g <- nil
		synctest.Wait()
		require.NoError(t, q.err)
		require.NoError(t, q.lease.Release())
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())

		q = l.join()
		q.cancel()
		p.Flush()
		g <- nil
		synctest.Wait()
		require.Equal(t, []int{1, 2}, s.gone(), "it is not kept idle")
	})
}

func TestWhoWaitsIsRefusedWithTheReasonAndWhoComesLaterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		early := []*queuer{l.join(), l.join()} // for the first one a create runs
		p.RefuseWaiting(errBroken)
		synctest.Wait()
		for _, q := range early {
			require.True(t, q.isDone())
			require.ErrorIs(t, q.err, errBroken)
		}
		late := l.join()
		require.False(t, late.isDone())
		g <- nil
		synctest.Wait()
		require.NoError(t, late.err)
		require.NoError(t, late.lease.Release())
	})
}

package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCloseDestroysIdleOnesAtOnceAndBorrowedOnesAtTheirRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := (&shop{destroy: func(*item) { time.Sleep(soon) }}).sell(t, quiet(3))
		leases := mustAll(t, p, 3)
		require.NoError(t, leases[0].Release())
		p.Close()
		require.Equal(t, []int{1}, s.gone())
		require.Equal(t, 2, p.Stats().Count, "Close has waited for Destroy")
		require.NoError(t, leases[1].Release())
		after(2 * soon)
		require.Equal(t, []int{1, 2}, s.gone())
		require.NoError(t, leases[2].Discard())
		after(2 * soon)
		require.Equal(t, []int{1, 2, 3}, s.gone())
		st := p.Stats()
		require.EqualValues(t, 2, st.Destroyed.Closed)
		require.EqualValues(t, 1, st.Destroyed.Discarded)
	})
}

func TestClosedPoolRefusesEverything(t *testing.T) {
	p, _ := sell(t, quiet(1))
	cycle(t, p, 1)
	p.Close()
	p.Close()
	_, err := p.Acquire(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.AcquireNow(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	_, ok := p.TryAcquire()
	require.False(t, ok)
	require.ErrorIs(t, p.Warm(t.Context()), ErrClosed)
	require.ErrorIs(t, p.Resize(3), ErrClosed)
	p.Flush()
	p.Deactivate()
	_, err = p.Acquire(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, p.CloseContext(t.Context()))
}

func TestCloseWakesEveryWaiterWithErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		all := []*queuer{l.joinWith(p.AcquireNow)}
		for range 3 {
			all = append(all, l.join())
		}
		warm := make(chan error, 1)
		go func() { warm <- p.Warm(context.Background()) }()
		after(3 * time.Second)
		p.Close()
		synctest.Wait()
		for _, q := range all {
			var e *AcquireError
			require.ErrorAs(t, q.err, &e)
			require.ErrorIs(t, q.err, ErrClosed)
			require.False(t, e.Timeout())
			require.Equal(t, 3*time.Second, e.Waited)
			require.ErrorContains(t, q.err, "pool: acquire: closed while a resource is being created (max 1")
		}
		require.NoError(t, <-warm, "there was nothing to warm")
		g <- nil
	})
}

func TestCloseDuringCreateDestroysTheProduct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, s := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		q := l.join()
		p.Close()
		synctest.Wait()
		require.ErrorIs(t, q.err, ErrClosed)
		g <- nil
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())
	})
}

func TestCloseEndsTheContextOfCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := (&shop{create: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}).sell(t, quiet(1))
		l := line{t: t, p: p}
		q := l.join()
		start := time.Now()
		require.NoError(t, p.CloseContext(t.Context()))
		require.Zero(t, time.Since(start))
		synctest.Wait()
		require.ErrorIs(t, q.err, ErrClosed)
		require.Zero(t, s.madeSoFar())
	})
}

func TestCloseContextWaitsForTheBorrowedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := (&shop{destroy: func(*item) { time.Sleep(soon) }}).sell(t, quiet(2))
		leases := mustAll(t, p, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.CloseContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "pool: close: resources are left: context deadline exceeded (lent 2, creating 0, destroying 0)")
		start := time.Now()
		go func() {
			time.Sleep(time.Minute)
			for _, l := range leases {
				_ = l.Release()
			}
		}()
		require.NoError(t, p.CloseContext(t.Context()))
		require.Equal(t, time.Minute+soon, time.Since(start))
		require.Len(t, s.gone(), 2)
		require.Zero(t, p.Stats().Count)
	})
}

func TestCloseFindsAResourceOnItsWayToAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(1))
		held := must(t, p)
		var tk ticket
		p.mu.Lock()
		w, err := p.enterLocked(t.Context(), &tk)
		p.mu.Unlock()
		require.NoError(t, err)
		require.NoError(t, held.Release()) // w has it and does not run
		p.Close()
		require.Empty(t, s.gone())
		r, _, err := p.await(t.Context(), w, &tk)
		require.NoError(t, err, "it was handed over before the pool was closed")
		require.NoError(t, Lease[*item]{r, r.stamp}.Release())
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())
	})
}

func TestCloseOfAnUnusedPoolReturnsAtOnce(t *testing.T) {
	p, s := sell(t, Config[*item]{Min: 3})
	p.Close()
	require.NoError(t, p.CloseContext(t.Context()))
	require.Zero(t, s.madeSoFar())
}

func TestCloseBoundsAStuckDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.DestroyTimeout = time.Second
		g := make(gate)
		p, _ := (&shop{destroy: func(*item) { g.wait() }}).sell(t, cfg)
		cycle(t, p, 1)
		start := time.Now()
		p.Close()
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, p.CloseContext(t.Context()))
		require.EqualValues(t, 1, p.Stats().Orphaned)
		close(g)
	})
}

func TestCloseUnusedClosesAPoolThatNobodyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, s := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		unused := func() bool { return p.CloseUnused(p.Stats().Moves) }
		alone := l.joinWith(p.AcquireNow)
		require.False(t, unused(), "somebody waits for a create of his own")
		g <- nil
		synctest.Wait()
		require.False(t, unused(), "it is lent")
		waiting := l.join()
		require.NoError(t, alone.lease.Discard())
		require.False(t, unused(), "somebody waits")
		g <- nil
		synctest.Wait()
		before := p.Stats().Moves
		require.NoError(t, waiting.lease.Release())
		require.False(t, p.CloseUnused(before), "it has come back since")
		require.Equal(t, 1, p.Stats().Idle)
		require.True(t, unused())
		require.NoError(t, p.CloseContext(t.Context()))
		require.Equal(t, []int{1, 2}, s.gone())
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.True(t, p.CloseUnused(before), "it is closed")
	})
}

func TestCloseUnusedDoesNotWaitForDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := (&shop{destroy: func(*item) { time.Sleep(soon) }}).sell(t, quiet(1))
		cycle(t, p, 1)
		began := time.Now()
		require.True(t, p.CloseUnused(p.Stats().Moves))
		require.Zero(t, time.Since(began))
		require.NoError(t, p.CloseContext(t.Context()))
		require.Equal(t, soon, time.Since(began))
		require.Equal(t, []int{1}, s.gone())
	})
}

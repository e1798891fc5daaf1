package pool

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// overdueContext has a deadline, and ends when its parent does.
type overdueContext struct {
	context.Context
	deadline time.Time
}

func (l overdueContext) Deadline() (time.Time, bool) { return l.deadline, true }

// Whoever's deadline has passed would only hand on what it is given.
func TestWhoIsLateIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		ctx, cancel := context.WithCancel(t.Context())
		late := l.joinWith(func(context.Context) (Lease[*item], error) {
			return p.Acquire(overdueContext{ctx, time.Now().Add(time.Second)})
		})
		next := l.join()
		time.Sleep(2 * time.Second)
		time.AfterFunc(lateGrace/2, cancel) // its timer comes a little later than its turn
		require.NoError(t, held.Release())
		synctest.Wait()
		require.True(t, next.isDone())
		require.False(t, late.isDone())
		after(lateGrace)
		require.True(t, late.isDone())
		require.ErrorIs(t, late.err, context.Canceled)
		require.Zero(t, p.count.revoked)
		require.EqualValues(t, 1, p.Stats().Cancelled)
		require.NoError(t, next.lease.Release())
	})
}

// A context that does not end with its deadline is no reason to wait for ever.
func TestWhoSeemsLateAndGoesOnIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		strange := l.joinWith(func(ctx context.Context) (Lease[*item], error) {
			return p.Acquire(overdueContext{ctx, time.Now().Add(time.Second)})
		})
		time.Sleep(2 * time.Second)
		require.NoError(t, held.Release())
		after(2 * lateGrace)
		require.True(t, strange.isDone())
		require.NoError(t, strange.err)
		require.NoError(t, strange.lease.Release())
	})
}

// Under a storm of deadlines few resources are given to acquirers that have left: about one of 100
// with the race detector on two processors, where it was 44 of 100 before.
func TestAStormOfDeadlinesRevokesLittle(t *testing.T) {
	p, _ := sell(t, quiet(4))
	var all sync.WaitGroup
	end := time.Now().Add(time.Second)
	for range 64 {
		all.Go(func() {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				if l, err := p.Acquire(ctx); err == nil {
					time.Sleep(500 * time.Microsecond)
					_ = l.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	revoked, acquires := p.count.revoked, p.acquires
	p.mu.Unlock()
	t.Logf("%d of %d", revoked, acquires)
	require.Less(t, revoked*20, acquires)
}

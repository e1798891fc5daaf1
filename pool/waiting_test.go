package pool

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitingListsTheQueueInItsOrder(t *testing.T) {
	for _, waiters := range []int{0, 1, 2, 2000} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := sell(t, Config[*item]{Max: 1, AcquireTimeout: time.Minute})
			l, err := p.Acquire(t.Context())
			require.NoError(t, err)
			require.Zero(t, l.Waited(), "only Create was waited for, which takes no time here")
			begun := time.Now()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var all sync.WaitGroup
			for i := range waiters {
				ctx := t.Context()
				if i == 0 {
					ctx = soon
				}
				all.Go(func() {
					if l, err := p.AcquireAs(ctx, i); err == nil {
						_ = l.Release()
					}
				})
				synctest.Wait()
			}
			queue := p.Waiting()
			require.Len(t, queue, waiters)
			for i, w := range queue {
				want := Waiting{Who: i, Since: begun, Until: begun.Add(time.Minute)}
				if i == 0 {
					want.Until = begun.Add(time.Second)
				}
				require.Equal(t, want.Who, w.Who)
				require.WithinDuration(t, want.Since, w.Since, time.Microsecond)
				require.WithinDuration(t, want.Until, w.Until, time.Microsecond)
			}
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, l.Release())
			all.Wait()
			require.Empty(t, p.Waiting())
		})
	}
}

func TestALeaseKnowsHowLongItsAcquirerWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, Config[*item]{Max: 1})
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		waited := make(chan time.Duration)
		go func() {
			l, _ := p.Acquire(t.Context())
			w := l.Waited()
			_ = l.Release()
			waited <- w
		}()
		time.Sleep(time.Second)
		require.NoError(t, l.Release())
		require.Equal(t, time.Second, <-waited)
		l, err = p.Acquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, l.Waited(), "one was idle")
		require.NoError(t, l.Release())
		require.Zero(t, Lease[*item]{}.Waited())
	})
}

func TestDestroyingSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reasons []Reason
		p, _ := sell(t, Config[*item]{Max: 1, MaxLifetime: time.Minute, Jitter: -1, Destroying: func(_ *item, why Reason) {
			mu.Lock()
			defer mu.Unlock()
			if reasons = append(reasons, why); why == ReasonFlushed {
				panic("a hook that panics keeps nothing from being destroyed")
			}
		}})
		for _, end := range []func(l Lease[*item]){
			func(l Lease[*item]) { _ = l.Discard() },
			func(l Lease[*item]) { p.Flush(); _ = l.Release() },
			func(l Lease[*item]) { time.Sleep(2 * time.Minute); _ = l.Release() },
			func(l Lease[*item]) { _ = l.Release(); p.Close() },
		} {
			l, err := p.Acquire(t.Context())
			require.NoError(t, err)
			end(l)
			synctest.Wait()
		}
		require.Equal(t, []Reason{ReasonDiscarded, ReasonFlushed, ReasonLifetime, ReasonClosed}, reasons)
	})
}

// BenchmarkWaiting shows for how long Waiting has the pool's lock, with 10,000 waiters in the queue.
func BenchmarkWaiting(b *testing.B) {
	const waiters = 10_000
	create := func(context.Context) (*item, error) { return &item{}, nil }
	p, err := New(Config[*item]{Max: 1, AcquireTimeout: -1, Create: create})
	require.NoError(b, err)
	l, err := p.Acquire(b.Context())
	require.NoError(b, err)
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			if l, err := p.AcquireAs(b.Context(), i); err == nil {
				_ = l.Release()
			}
		})
	}
	for p.Stats().Waiting < waiters {
		time.Sleep(time.Millisecond)
	}
	for b.Loop() {
		p.lookAtQueue()
	}
	require.NoError(b, l.Release())
	all.Wait()
	p.Close()
}

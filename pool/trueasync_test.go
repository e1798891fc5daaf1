package pool

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Behaviours of TrueAsync's Async\Pool that no other test here has in this
// form. docs/internals/trueasync.md lists all of its tests.

func TestStatsFollowEveryLoanFromTheEmptyPoolOn(t *testing.T) {
	p, _ := sell(t, quiet(2))
	stand := func(idle, lent int) {
		t.Helper()
		s := p.Stats()
		require.Equal(t, idle, s.Idle, "idle")
		require.Equal(t, lent, s.Lent, "lent")
		require.Equal(t, lent, s.Active, "active")
		require.Equal(t, idle+lent, s.Count, "count")
	}
	stand(0, 0)
	first, err := p.AcquireNow(t.Context())
	require.NoError(t, err)
	stand(0, 1)
	second := must(t, p)
	stand(0, 2)
	_, err = p.AcquireNow(t.Context())
	require.ErrorIs(t, err, ErrNoneNow)
	_, ok := p.TryAcquire()
	require.False(t, ok)
	stand(0, 2)

	require.NoError(t, first.Release())
	stand(1, 1)
	again, ok := p.TryAcquire()
	require.True(t, ok)
	require.Same(t, first.Value(), again.Value())
	stand(0, 2)
	require.NoError(t, again.Release())
	require.NoError(t, second.Release())
	stand(2, 0)
}

func TestEveryHookRunsOnceAtItsPointOfALoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var diary []string
		note := func(hook string, v *item) {
			mu.Lock()
			defer mu.Unlock()
			diary = append(diary, fmt.Sprintf("%s %d", hook, v.id))
		}
		cfg := quiet(2)
		cfg.Min = 1
		cfg.BeforeAcquire = func(_ context.Context, v *item) error { note("BeforeAcquire", v); return nil }
		cfg.BeforeRelease = func(_ context.Context, v *item) error { note("BeforeRelease", v); return nil }
		p, s := (&shop{destroy: func(v *item) { note("Destroy", v) }}).sell(t, cfg)
		require.NoError(t, p.Warm(t.Context()))
		require.Equal(t, 1, s.madeSoFar())
		for range 2 {
			l := must(t, p)
			note("use", l.Value())
			require.NoError(t, l.Release())
		}
		synctest.Wait()
		require.Empty(t, s.gone(), "a release destroys nothing")
		p.Close()
		require.Equal(t, []string{
			"BeforeAcquire 1", "use 1", "BeforeRelease 1",
			"BeforeAcquire 1", "use 1", "BeforeRelease 1",
			"Destroy 1",
		}, diary)
	})
}

func TestResourceRefusedByBeforeReleaseIsNotCountedAnyMore(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(5)
				cfg.BeforeRelease = func(context.Context, *item) error { return fail() }
				p, s := sell(t, cfg)
				l := must(t, p)
				require.NoError(t, l.Release(), "the borrower has done nothing wrong")
				synctest.Wait()
				require.Equal(t, []int{1}, s.gone())
				require.Zero(t, p.Stats().Idle)
				require.Zero(t, p.Stats().Count)
				_, ok := p.TryAcquire()
				require.False(t, ok)
			})
		})
	}
}

func TestResourcesBeingCreatedCountAgainstMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		cfg := quiet(3)
		cfg.MaxConcurrentCreates = -1
		p, s := (&shop{create: g.pass}).sell(t, cfg)
		l := line{t: t, p: p}
		var all []*queuer
		for range 10 {
			all = append(all, l.join())
			require.LessOrEqual(t, p.Stats().Creating, 3)
		}
		require.Equal(t, 3, p.Stats().Creating)
		require.Equal(t, 3, p.Stats().Count)
		for range 3 {
			g <- nil
		}
		for i, q := range all {
			synctest.Wait()
			require.NoError(t, q.err, "waiter %d", i)
			require.True(t, q.isDone(), "waiter %d", i)
			require.NoError(t, q.lease.Release())
		}
		require.Equal(t, 3, s.madeSoFar())
		require.Equal(t, 3, p.Stats().Idle)
	})
}

func TestManyBorrowersShareFewResources(t *testing.T) {
	for _, c := range []struct{ borrowers, max int }{{3, 1}, {3, 2}, {5, 2}, {10, 3}, {15, 15}} {
		t.Run(fmt.Sprintf("borrowers=%d,max=%d", c.borrowers, c.max), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := sell(t, quiet(c.max))
				var mu sync.Mutex
				working, most := 0, 0
				step := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					working += n
					most = max(most, working)
				}
				var wg sync.WaitGroup
				for range c.borrowers {
					wg.Go(func() {
						l, err := p.Acquire(context.Background())
						if err != nil {
							t.Errorf("a borrower got nothing: %v", err)
							return
						}
						step(1)
						time.Sleep(soon) // works
						step(-1)
						if err := l.Release(); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				require.Equal(t, c.max, most, "at work at once")
				require.Equal(t, c.max, s.madeSoFar())
				require.Equal(t, c.max, p.Stats().Idle)
				require.EqualValues(t, c.borrowers, p.Stats().Acquires)
			})
		})
	}
}

func TestPoolWhoseCreatesFailedIsAsGoodAsNew(t *testing.T) {
	bad := 2
	p, _ := (&shop{create: func(context.Context) error {
		if bad == 0 {
			return nil
		}
		bad--
		return errBroken
	}}).sell(t, quiet(1))
	for range 2 {
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.Zero(t, p.Stats().Count, "the place is free")
		require.Zero(t, p.Stats().Waiting)
	}
	cycle(t, p, 1)
	require.Equal(t, 1, p.Stats().Count)
}

func TestBusyClosedAndUnavailableAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*Pool[*item])
		want error
	}{
		{"busy", func(*Pool[*item]) {}, ErrTimeout},
		{"closed", (*Pool[*item]).Close, ErrClosed},
		{"breaker open", (*Pool[*item]).Deactivate, ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				cfg.AcquireTimeout = time.Second
				p, _ := sell(t, cfg)
				held := must(t, p)
				c.make(p)
				_, err := p.Acquire(t.Context())
				for _, is := range []error{ErrTimeout, ErrClosed, ErrUnavailable} {
					if is == c.want {
						require.ErrorIs(t, err, is)
					} else {
						require.NotErrorIs(t, err, is)
					}
				}
				require.NoError(t, held.Release())
			})
		})
	}
}

func TestCloseDestroysTheOthersWhenDestroyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var heard []string
		cfg := quiet(3)
		cfg.OnError = func(hook string, err error) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, hook)
		}
		p, s := (&shop{destroy: func(*item) { panic("trouble") }}).sell(t, cfg)
		cycle(t, p, 3)
		require.NotPanics(t, p.Close)
		require.ElementsMatch(t, []int{1, 2, 3}, s.gone())
		require.Zero(t, p.Stats().Count)
		synctest.Wait()
		require.Equal(t, []string{"Destroy", "Destroy", "Destroy"}, heard)
	})
}

func TestCloseWhileAPanicUnwindsKeepsThatPanic(t *testing.T) {
	p, s := (&shop{destroy: func(*item) { panic("trouble in Destroy") }}).sell(t, quiet(2))
	require.PanicsWithValue(t, "boom", func() {
		defer p.Close()
		cycle(t, p, 1)
		panic("boom")
	})
	require.Equal(t, []int{1}, s.gone())
}

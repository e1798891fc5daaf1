package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewNamesEverythingThatIsWrongWithTheConfig(t *testing.T) {
	_, err := New(Config[int]{Max: -1, Min: -2, MinIdle: -3, MaxWaiters: -4, IdleOrder: 9})
	for _, want := range []string{"Create", "Max is -1", "Min is -2", "MinIdle is -3", "MaxWaiters is -4", "IdleOrder is 9"} {
		require.ErrorContains(t, err, want)
	}
	_, err = New(Config[int]{Create: func(context.Context) (int, error) { return 0, nil }, Max: 2, Min: 3})
	require.EqualError(t, err, "pool: config: Min is 3, more than Max, which is 2")
}

func TestZeroDurationsAreDefaultsAndNegativeOnesAreNoBound(t *testing.T) {
	create := func(context.Context) (int, error) { return 0, nil }
	c, err := Config[int]{Create: create}.completed()
	require.NoError(t, err)
	require.Equal(t, 10, c.Max)
	require.Equal(t, 30*time.Second, c.AcquireTimeout)
	require.Equal(t, 10*time.Second, c.CreateTimeout)
	require.Equal(t, 5*time.Second, c.ReleaseTimeout)
	require.Equal(t, 5*time.Second, c.CheckTimeout)
	require.Equal(t, 5*time.Second, c.DestroyTimeout)
	require.Equal(t, time.Minute, c.CheckInterval)
	require.Equal(t, time.Hour, c.MaxLifetime)
	require.Equal(t, 6*time.Minute, c.Jitter)
	require.Equal(t, 30*time.Minute, c.MaxIdleTime)
	require.Zero(t, c.StarveAfter, "there is nothing to call")

	starving := func(int) {}
	c, err = Config[int]{Create: create, Starving: starving}.completed()
	require.NoError(t, err)
	require.Equal(t, 20*time.Millisecond, c.StarveAfter)

	c, err = Config[int]{Create: create, AcquireTimeout: -1, CreateTimeout: -1, ReleaseTimeout: -1, CheckTimeout: -1,
		DestroyTimeout: -1, CheckInterval: -1, MaxLifetime: -1, Jitter: time.Hour, MaxIdleTime: -1,
		Starving: starving, StarveAfter: -1}.completed()
	require.NoError(t, err)
	for _, d := range []time.Duration{c.AcquireTimeout, c.CreateTimeout, c.ReleaseTimeout, c.CheckTimeout,
		c.DestroyTimeout, c.CheckInterval, c.MaxLifetime, c.Jitter, c.MaxIdleTime, c.StarveAfter} {
		require.Zero(t, d)
	}
}

func TestNewCreatesNothingAndFirstUseFillsUpToMin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(5)
		cfg.Min = 3
		p, s := sell(t, cfg)
		synctest.Wait()
		require.Zero(t, s.madeSoFar())
		l := must(t, p)
		synctest.Wait()
		require.Equal(t, 3, s.madeSoFar())
		require.Equal(t, 2, p.Stats().Idle)
		require.NoError(t, l.Release())
		require.Equal(t, 3, p.Stats().Idle)
	})
}

func TestAcquireCreatesOnDemandUpToMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(3))
		leases := mustAll(t, p, 3)
		require.Equal(t, 3, s.madeSoFar())
		l := line{t: t, p: p}
		fourth := l.join()
		require.False(t, fourth.isDone())
		require.Equal(t, 3, s.madeSoFar())
		require.Equal(t, 1, p.Stats().Waiting)
		require.NoError(t, leases[1].Release())
		synctest.Wait()
		require.Equal(t, leases[1].Value(), fourth.lease.Value())
		for _, x := range []Lease[*item]{leases[0], leases[2], fourth.lease} {
			require.NoError(t, x.Release())
		}
	})
}

func TestReleasedResourceIsUsedAgain(t *testing.T) {
	p, s := sell(t, quiet(5))
	cycle(t, p, 1)
	cycle(t, p, 1)
	require.Equal(t, 1, s.madeSoFar())
}

func TestIdleResourcesAreLentLastInFirstOutUnlessToldOtherwise(t *testing.T) {
	for _, c := range []struct {
		order IdleOrder
		want  []int
	}{{LIFO, []int{3, 2, 1}}, {FIFO, []int{1, 2, 3}}} {
		cfg := quiet(3)
		cfg.IdleOrder = c.order
		p, _ := sell(t, cfg)
		cycle(t, p, 3)
		var got []int
		leases := mustAll(t, p, 3)
		for _, l := range leases {
			got = append(got, l.Value().id)
		}
		require.Equal(t, c.want, got)
		for _, l := range leases {
			require.NoError(t, l.Release())
		}
	}
}

func TestIdleListIsARingThatGrowsAndRestores(t *testing.T) {
	var l idleList[int]
	var model []*resource[int]
	for i := range 1000 {
		switch {
		case i%7 == 3 && len(model) > 0:
			require.Same(t, model[0], l.popOldest())
			model = model[1:]
		case i%11 == 5 && len(model) > 0:
			require.Same(t, model[len(model)-1], l.popNewest())
			model = model[:len(model)-1]
		case i%13 == 7 && len(model) > 2:
			k := i % len(model)
			require.Equal(t, k, l.find(model[k]))
			r := l.removeAt(k)
			require.Same(t, model[k], r)
			require.Equal(t, -1, l.find(r))
			l.restore(r)
		default:
			r := &resource[int]{}
			l.push(r)
			model = append(model, r)
		}
		require.Equal(t, len(model), l.n)
		for k, r := range model {
			require.Same(t, r, l.at(k))
		}
	}
}

func TestTryAcquireTakesIdleOnesAndNeverCreates(t *testing.T) {
	p, s := sell(t, quiet(2))
	_, ok := p.TryAcquire()
	require.False(t, ok)
	require.Zero(t, s.madeSoFar())
	cycle(t, p, 1)
	l, ok := p.TryAcquire()
	require.True(t, ok)
	_, ok = p.TryAcquire()
	require.False(t, ok, "the only one is lent")
	require.NoError(t, l.Release())
	p.Close()
	_, ok = p.TryAcquire()
	require.False(t, ok)
}

func TestOnlyIdleTakesAnIdleOneOrSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(2))
		_, err := p.AcquireWith(t.Context(), nil, OnlyIdle)
		require.Equal(t, ErrNoneNow, err)
		synctest.Wait()
		require.Zero(t, s.madeSoFar())
		cycle(t, p, 1)
		a, err := p.AcquireWith(t.Context(), nil, OnlyIdle)
		require.NoError(t, err)
		_, err = p.AcquireWith(t.Context(), nil, OnlyIdle)
		require.Equal(t, ErrNoneNow, err)
		require.NoError(t, a.Release())
		synctest.Wait()
		require.Equal(t, 1, s.madeSoFar())
	})
}

func TestAcquireNowTakesIdleOrCreatesOrSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(2))
		a, err := p.AcquireNow(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.Release())
		a, err = p.AcquireNow(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, s.madeSoFar(), "the idle one")
		b, err := p.AcquireNow(t.Context())
		require.NoError(t, err)
		_, err = p.AcquireNow(t.Context())
		require.ErrorIs(t, err, ErrNoneNow)

		l := line{t: t, p: p}
		w := l.join()
		require.NoError(t, p.Resize(3))
		synctest.Wait()
		require.True(t, w.isDone())
		w2 := l.join()
		require.NoError(t, a.Discard()) // room, but for w2
		_, err = p.AcquireNow(t.Context())
		require.ErrorIs(t, err, ErrNoneNow)
		synctest.Wait()
		require.NoError(t, w2.err)
		for _, x := range []Lease[*item]{b, w.lease, w2.lease} {
			require.NoError(t, x.Release())
		}
	})
}

func TestAcquireNowGetsTheResourceCreatedForItEvenIfOthersCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(2))
		l := line{t: t, p: p}
		now := l.joinWith(p.AcquireNow)
		later := l.join() // causes a create of its own
		require.Equal(t, 2, p.Stats().Creating)
		g <- nil
		g <- nil
		synctest.Wait()
		require.NoError(t, now.err)
		require.NoError(t, later.err)

		// One that left: its product goes to the queue.
		require.NoError(t, now.lease.Discard())
		synctest.Wait()
		now = l.joinWith(p.AcquireNow)
		waiter := l.join()
		now.cancel()
		synctest.Wait()
		require.ErrorIs(t, now.err, context.Canceled)
		require.False(t, waiter.isDone())
		g <- nil
		synctest.Wait()
		require.NoError(t, waiter.err)
		require.NoError(t, waiter.lease.Release())
		require.NoError(t, later.lease.Release())
	})
}

func TestAcquireNowCreatesAsManyAtOnceAsThereIsCapacityUnlessBounded(t *testing.T) {
	for limit, want := range map[int]int{0: 8, -1: 8, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			g := make(gate)
			cfg := quiet(8)
			cfg.MaxConcurrentCreates = limit
			p, _ := (&shop{create: g.pass}).sell(t, cfg)
			l := line{t: t, p: p}
			var all []*queuer
			for range 9 {
				all = append(all, l.joinWith(p.AcquireNow))
			}
			require.Equal(t, want, p.Stats().Creating)
			for range want {
				g <- nil
			}
			synctest.Wait()
			for i, q := range all {
				if i < want {
					require.NoError(t, q.err)
					require.NoError(t, q.lease.Release())
				} else {
					require.ErrorIs(t, q.err, ErrNoneNow)
				}
			}
		})
	}
}

func TestResourcesOfAnyTypeIncludingZeroValuesAreLent(t *testing.T) {
	check := func(t *testing.T, err error) { require.NoError(t, err) }
	t.Run("struct", func(t *testing.T) { check(t, lendOne(struct{ a, b string }{"x", "y"})) })
	t.Run("nil interface", func(t *testing.T) { check(t, lendOne[error](nil)) })
	t.Run("nil pointer", func(t *testing.T) { check(t, lendOne[*int](nil)) })
	t.Run("function", func(t *testing.T) { check(t, lendOne(func() {})) })
	t.Run("nothing", func(t *testing.T) { check(t, lendOne(struct{}{})) })
	t.Run("slice", func(t *testing.T) { check(t, lendOne([]byte("x"))) })
}

func lendOne[T any](v T) error {
	p, err := New(Config[T]{Create: func(context.Context) (T, error) { return v, nil }})
	if err != nil {
		return err
	}
	for range 2 {
		l, err := p.Acquire(context.Background())
		if err != nil {
			return err
		}
		_ = l.Value()
		if err := l.Release(); err != nil {
			return err
		}
	}
	return p.CloseContext(context.Background())
}

package pool

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// failures are the ways in which a hook can fail.
var failures = map[string]func() error{
	"error": func() error { return errBroken },
	"panic": func() error { panic("trouble") },
}

func TestResourceRefusedByBeforeAcquireIsDestroyedAndTheNextOneTried(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			cfg := quiet(3)
			var asked []int
			cfg.BeforeAcquire = func(_ context.Context, v *item) error {
				asked = append(asked, v.id)
				if v.id != 1 {
					return fail()
				}
				return nil
			}
			p, s := sell(t, cfg)
			cycle(t, p, 3)
			require.Empty(t, asked, "they were fresh")
			l := must(t, p)
			require.Equal(t, 1, l.Value().id)
			require.Equal(t, []int{3, 2, 1}, asked)
			require.NoError(t, l.Release())
			require.Equal(t, 3, s.madeSoFar())
			st := p.Stats()
			require.EqualValues(t, 2, st.Destroyed.BeforeAcquire)
			require.EqualValues(t, 4, st.Acquires, "refused ones do not count")
		})
	}
}

func TestWhenAllIdleAreRefusedAFreshOneIsCreatedAndNotAskedAbout(t *testing.T) {
	cfg := quiet(1)
	cfg.BeforeAcquire = func(context.Context, *item) error { return errBroken }
	p, s := sell(t, cfg)
	for want := 1; want <= 3; want++ {
		l := must(t, p)
		require.Equal(t, want, l.Value().id)
		require.NoError(t, l.Release())
	}
	require.Equal(t, 3, s.madeSoFar())
	_, ok := p.TryAcquire()
	require.False(t, ok, "it is refused, and TryAcquire creates nothing")
	cycle(t, p, 1)
	l, err := p.AcquireNow(t.Context())
	if err != nil { // the place may still be taken by the one that was refused
		require.ErrorIs(t, err, ErrNoneNow)
		return
	}
	require.NoError(t, l.Release())
}

func TestBeforeAcquireSeesAHandOverInTheAcquirersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		var value any
		cfg.BeforeAcquire = func(ctx context.Context, _ *item) error { value = ctx.Value(ctxKey{}); return nil }
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.joinWith(func(ctx context.Context) (Lease[*item], error) {
			return p.Acquire(context.WithValue(ctx, ctxKey{}, "mine"))
		})
		require.NoError(t, held.Release())
		synctest.Wait()
		require.NoError(t, q.err)
		require.Equal(t, "mine", value)
		require.NoError(t, q.lease.Release())
	})
}

func TestBeforeAcquireInterruptedByItsAcquirersContextCostsTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.BeforeAcquire = func(ctx context.Context, _ *item) error { <-ctx.Done(); return ctx.Err() }
		p, _ := sell(t, cfg)
		cycle(t, p, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Zero(t, p.Stats().Count)
		require.EqualValues(t, 1, p.Stats().Destroyed.BeforeAcquire)
	})
}

// lateContext is done when it is asked for the second time.
type lateContext struct {
	context.Context
	asked int
}

func (c *lateContext) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

func TestAContextThatEndsBeforeBeforeAcquireBeginsCostsNothing(t *testing.T) {
	cfg := quiet(1)
	cfg.BeforeAcquire = func(ctx context.Context, _ *item) error { return ctx.Err() }
	p, _ := sell(t, cfg)
	cycle(t, p, 1)
	_, err := p.Acquire(&lateContext{Context: t.Context()})
	require.ErrorIs(t, err, context.Canceled)
	st := p.Stats()
	require.Equal(t, 1, st.Idle)
	require.Zero(t, st.Destroyed.BeforeAcquire)
	cycle(t, p, 1)
}

func TestTryAcquireBoundsBeforeAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CheckTimeout = time.Second
		cfg.BeforeAcquire = func(ctx context.Context, _ *item) error { <-ctx.Done(); return ctx.Err() }
		p, _ := sell(t, cfg)
		cycle(t, p, 1)
		start := time.Now()
		_, ok := p.TryAcquire()
		require.False(t, ok)
		require.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		require.Zero(t, p.Stats().Count)
	})
}

func TestResourceRefusedByBeforeReleaseIsDestroyedAndTheNextWaiterWoken(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				cfg.BeforeRelease = func(context.Context, *item) error { return fail() }
				p, s := sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				q := l.join()
				require.NoError(t, held.Release())
				synctest.Wait()
				require.NoError(t, q.err)
				require.Equal(t, 2, q.lease.Value().id)
				require.Equal(t, []int{1}, s.gone())
				require.NoError(t, q.lease.Release())
				synctest.Wait()
				require.EqualValues(t, 2, p.Stats().Destroyed.BeforeRelease)
			})
		})
	}
}

func TestBeforeReleaseHasReleaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.ReleaseTimeout = time.Second
		cfg.BeforeRelease = func(ctx context.Context, _ *item) error { <-ctx.Done(); return ctx.Err() }
		p, _ := sell(t, cfg)
		start := time.Now()
		cycle(t, p, 1)
		require.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		require.Zero(t, p.Stats().Count)
	})
}

func TestHookThatEndsItsGoroutineCostsTheResourceAndNothingElse(t *testing.T) {
	for _, hook := range []string{"BeforeAcquire", "BeforeRelease"} {
		t.Run(hook, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exit := false
				h := func(context.Context, *item) error {
					if exit {
						runtime.Goexit()
					}
					return nil
				}
				cfg := quiet(1)
				if hook == "BeforeAcquire" {
					cfg.BeforeAcquire = h
				} else {
					cfg.BeforeRelease = h
				}
				p, s := sell(t, cfg)
				cycle(t, p, 1)
				exit = true
				go func() {
					l, err := p.Acquire(context.Background())
					if err == nil {
						_ = l.Release()
					}
				}()
				synctest.Wait()
				exit = false
				require.Equal(t, []int{1}, s.gone())
				cycle(t, p, 1)
				require.Equal(t, 2, s.madeSoFar())
			})
		})
	}
}

func TestResourceIsCountedWhileHooksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.BeforeAcquire = func(context.Context, *item) error { time.Sleep(3 * soon); return nil }
		cfg.BeforeRelease = cfg.BeforeAcquire
		cfg.Check = cfg.BeforeAcquire
		cfg.CheckInterval = 10 * soon
		p, s := sell(t, cfg)
		cycle(t, p, 1)
		var wg sync.WaitGroup
		wg.Go(func() { cycle(t, p, 1) })
		for range 30 {
			after(soon)
			st := p.Stats()
			require.Equal(t, 1, st.Count)
			require.Equal(t, st.Count, st.Idle+st.Active)
		}
		wg.Wait()
		require.Equal(t, 1, s.madeSoFar())
	})
}

func TestHooksMayUseThePool(t *testing.T) {
	var p *Pool[*item]
	inquire := func(context.Context, *item) error { p.Stats(); p.State(); _, _ = p.TryAcquire(); return nil }
	cfg := quiet(1)
	cfg.BeforeAcquire, cfg.BeforeRelease = inquire, inquire
	p, _ = (&shop{
		create:  func(ctx context.Context) error { return inquire(ctx, nil) },
		destroy: func(v *item) { _ = inquire(nil, v) },
	}).sell(t, cfg)
	cycle(t, p, 1)
	cycle(t, p, 1)
	p.Flush()
	cycle(t, p, 1)
}

func TestOnErrorHearsOfEveryHookThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var heard []string
		fail := ""
		set := func(hook string) {
			mu.Lock()
			defer mu.Unlock()
			fail = hook
		}
		hook := func(name string) func(context.Context, *item) error {
			return func(context.Context, *item) error {
				mu.Lock()
				defer mu.Unlock()
				switch fail {
				case name:
					return errBroken
				case name + " panics":
					panic("trouble")
				}
				return nil
			}
		}
		cfg := quiet(1)
		cfg.CheckInterval = time.Minute
		cfg.DestroyTimeout = time.Second
		cfg.BeforeAcquire, cfg.BeforeRelease, cfg.Check = hook("BeforeAcquire"), hook("BeforeRelease"), hook("Check")
		cfg.OnError = func(hook string, err error) {
			mu.Lock()
			heard = append(heard, hook+": "+err.Error())
			mu.Unlock()
			panic("OnError itself")
		}
		stuck := make(gate)
		create, destroy := hook("Create"), hook("Destroy")
		p, _ := (&shop{
			create: func(ctx context.Context) error { return create(ctx, nil) },
			destroy: func(v *item) {
				if v.id == 4 {
					stuck.wait()
				}
				_ = destroy(context.Background(), v)
			},
		}).sell(t, cfg)
		for _, f := range []string{"Create", "Create panics", "", "BeforeAcquire", "BeforeRelease panics", "Destroy panics"} {
			set(f)
			if l, err := p.Acquire(t.Context()); err == nil {
				_ = l.Release()
			}
			if f == "Destroy panics" {
				p.Flush()
			}
			synctest.Wait()
		}
		set("")
		cycle(t, p, 1)
		set("Check")
		after(time.Minute)
		set("")
		after(time.Second)
		close(stuck)
		require.Equal(t, []string{
			"Create: broken",
			"Create: pool: Create panicked: string: trouble",
			"BeforeAcquire: broken",
			"BeforeRelease: pool: BeforeRelease panicked: string: trouble",
			"Destroy: pool: Destroy panicked: string: trouble",
			"Check: broken",
			"Destroy: pool: Destroy has not returned within DestroyTimeout; the resource is orphaned",
		}, heard)
	})
}

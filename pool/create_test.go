package pool

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type ctxKey struct{}

func TestCreateHasItsCausersValuesButNotItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CreateTimeout = 7 * time.Second
		var value any
		var left time.Duration
		p, _ := (&shop{create: func(ctx context.Context) error {
			value = ctx.Value(ctxKey{})
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		}}).sell(t, cfg)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "x"), time.Second)
		defer cancel()
		l, err := p.Acquire(ctx)
		require.NoError(t, err)
		require.Equal(t, "x", value)
		require.Equal(t, 7*time.Second, left)
		require.NoError(t, l.Release())
	})
}

func TestEachOfSeveralCreatesHasTheValuesOfItsOwnCauser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := make(chan any, 3)
		g := make(gate)
		p, _ := (&shop{create: func(ctx context.Context) error {
			values <- ctx.Value(ctxKey{})
			return <-g
		}}).sell(t, quiet(3))
		l := line{t: t, p: p}
		var all []*queuer
		for i := range 3 {
			all = append(all, l.joinWith(func(ctx context.Context) (Lease[*item], error) {
				return p.Acquire(context.WithValue(ctx, ctxKey{}, i))
			}))
			require.Equal(t, i, <-values)
		}
		for _, q := range all {
			g <- nil
			synctest.Wait()
			require.NoError(t, q.lease.Release())
		}
	})
}

func TestCancelledWaiterDoesNotAbortACreateThatOthersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, s := (&shop{create: func(ctx context.Context) error {
			select {
			case err := <-g:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}}).sell(t, quiet(1))
		l := line{t: t, p: p}
		causer, other := l.join(), l.join()
		causer.cancel()
		synctest.Wait()
		require.ErrorIs(t, causer.err, context.Canceled)
		g <- nil
		synctest.Wait()
		require.NoError(t, other.err)
		require.Equal(t, 1, s.madeSoFar())
		require.NoError(t, other.lease.Release())
	})
}

func TestResourceThatNobodyWaitsForAnyMoreGoesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		q := l.join()
		q.cancel()
		synctest.Wait()
		require.True(t, q.isDone())
		g <- nil
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Idle)
	})
}

func TestCreateErrorGoesToTheHeadAndLetsTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		first, second, third := l.join(), l.join(), l.join()
		g <- errBroken
		synctest.Wait()
		require.ErrorIs(t, first.err, errBroken)
		require.EqualError(t, first.err, "pool: create: broken")
		var create *CreateError
		require.ErrorAs(t, first.err, &create)
		require.False(t, second.isDone())
		require.Equal(t, 1, p.Stats().Creating, "for the second")
		g <- nil
		synctest.Wait()
		require.NoError(t, second.err)
		require.NoError(t, second.lease.Release())
		synctest.Wait()
		require.NoError(t, third.err)
		require.NoError(t, third.lease.Release())
		require.EqualValues(t, 1, p.Stats().CreateErrors)
		require.EqualValues(t, 1, p.Stats().Creates)
	})
}

func TestErrorOfACreateForMinBothersNobodyWhoHasOneOfHisOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, forMin := make(gate), make(gate)
		cfg := quiet(3)
		cfg.Min = 3
		p, _ := (&shop{create: func(ctx context.Context) error {
			if ctx.Value(ctxKey{}) != nil {
				return <-own
			}
			return <-forMin
		}}).sell(t, cfg)
		l := line{t: t, p: p}
		q := l.joinWith(func(ctx context.Context) (Lease[*item], error) {
			return p.Acquire(context.WithValue(ctx, ctxKey{}, "x"))
		})
		require.Equal(t, 3, p.Stats().Creating)
		forMin <- errBroken
		synctest.Wait()
		require.False(t, q.isDone())
		own <- nil
		synctest.Wait()
		require.NoError(t, q.err)
		forMin <- nil
		forMin <- nil // the success starts another for Min
		synctest.Wait()
		require.Equal(t, 3, p.Stats().Count)
		require.NoError(t, q.lease.Release())
	})
}

func TestFiftyWaitersOnASlowCreateOpenFewIfReleasesServeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		var fast bool
		s := &shop{create: func(context.Context) error {
			if fast {
				return nil
			}
			return <-g
		}}
		p, _ := s.sell(t, quiet(100))
		fast = true
		held := mustAll(t, p, 5)
		fast = false
		l := line{t: t, p: p}
		var all []*queuer
		for range 50 {
			all = append(all, l.join())
		}
		require.Equal(t, 5, p.Stats().Creating, "as many as there are resources")
		for served := 0; served < 50; {
			for _, h := range held {
				require.NoError(t, h.Release())
			}
			synctest.Wait()
			held = held[:0]
			for _, q := range all {
				if q.isDone() && q.lease.Valid() {
					require.NoError(t, q.err)
					held = append(held, q.lease)
					served++
				}
			}
		}
		require.Equal(t, 5, p.Stats().Creating, "none was started since")
		for range 5 {
			g <- nil
		}
		synctest.Wait()
		require.Equal(t, 10, s.madeSoFar())
		require.Equal(t, 5, p.Stats().Idle)
		for _, h := range held {
			require.NoError(t, h.Release())
		}
	})
}

func TestCreatesRunAtOnceOnlyAsFarAsAllowed(t *testing.T) {
	for _, c := range []struct{ limit, running, later int }{
		{limit: 0, running: 4, later: 4}, // later: 4 exist, 4 more may
		{limit: 2, running: 2, later: 2},
		{limit: -1, running: 10, later: 0},
	} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				cfg := quiet(10)
				cfg.MaxConcurrentCreates = c.limit
				p, _ := (&shop{create: g.pass}).sell(t, cfg)
				l := line{t: t, p: p}
				var all []*queuer
				for range 10 {
					all = append(all, l.join())
				}
				require.Equal(t, c.running, p.Stats().Creating)
				for range c.running {
					g <- nil
				}
				synctest.Wait()
				require.Equal(t, c.later, p.Stats().Creating)
				for range 10 - c.running {
					g <- nil
				}
				synctest.Wait()
				for _, q := range all {
					require.NoError(t, q.err)
					require.NoError(t, q.lease.Release())
				}
			})
		})
	}
}

func TestCreateThatPanicsOrExitsIsAnErrorThatNamesIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		create func(context.Context) error
		want   string
	}{
		{"string", func(context.Context) error { panic("no more") }, "pool: create: pool: Create panicked: string: no more"},
		{"error", func(context.Context) error { panic(errBroken) }, "pool: create: pool: Create panicked: *errors.errorString: broken"},
		{"runtime", func(context.Context) error { var none []int; _ = none[len(none)]; return nil }, "pool: create: pool: Create panicked: runtime error: index out of range [0] with length 0"},
		{"secret", func(context.Context) error { panic(struct{ Password string }{"hunter2"}) }, "pool: create: pool: Create panicked with a struct { Password string }"},
		{"exit", func(context.Context) error { runtime.Goexit(); return nil }, "pool: create: pool: Create called runtime.Goexit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &shop{create: c.create}
			p, _ := s.sell(t, quiet(1))
			_, err := p.Acquire(t.Context())
			require.EqualError(t, err, c.want)
			var p1 *PanicError
			require.ErrorAs(t, err, &p1)
			require.Equal(t, "Create", p1.Hook)
			if c.name == "error" {
				require.ErrorIs(t, err, errBroken)
			}
			require.Zero(t, p.Stats().Count, "the place is free")
			s.create = nil
			cycle(t, p, 1)
		})
	}
}

func TestCreateThatHeedsItsContextEndsAfterCreateTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CreateTimeout = time.Second
		p, _ := (&shop{create: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}).sell(t, cfg)
		start := time.Now()
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
	})
}

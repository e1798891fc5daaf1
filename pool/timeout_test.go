package pool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAcquireTimeoutTellsHowThePoolStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.AcquireTimeout = 3 * time.Second
		s := &shop{}
		p, _ := s.sell(t, cfg)
		held := must(t, p)
		s.create = func(context.Context) error { return errBroken }
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, errBroken)
		g := make(gate)
		s.create = g.pass

		_, err = p.Acquire(t.Context())
		require.EqualError(t, err, "pool: acquire: timed out while a resource is being created; the last create failed: broken (max 2, active 2, idle 0, waiting 0; waited 3s; creating 1, for 3s)")
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, errBroken, "it is not why this one failed")
		var e *AcquireError
		require.ErrorAs(t, err, &e)
		require.Equal(t, 3*time.Second, e.Waited)
		require.Equal(t, errBroken, e.LastCreateErr)
		var timeout interface{ Timeout() bool } = e
		require.True(t, timeout.Timeout())
		require.EqualValues(t, 1, p.Stats().Timeouts)
		g <- nil
		require.NoError(t, held.Release())
	})
}

func TestOneTimerTimesOutEveryWaiterAtItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Second
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		var all []*queuer
		for range 5 {
			all = append(all, l.join())
			after(100 * time.Millisecond)
		}
		all[1].cancel()
		after(499 * time.Millisecond)
		require.False(t, all[0].isDone())
		after(time.Millisecond)
		require.ErrorIs(t, all[0].err, ErrTimeout)
		require.ErrorIs(t, all[1].err, context.Canceled)
		require.False(t, all[2].isDone())
		after(199 * time.Millisecond)
		require.False(t, all[2].isDone())
		after(time.Millisecond)
		require.ErrorIs(t, all[2].err, ErrTimeout)
		require.NoError(t, held.Release())
		synctest.Wait()
		require.NoError(t, all[3].err)
		require.NoError(t, all[3].lease.Release())
		synctest.Wait()
		require.NoError(t, all[4].lease.Release())

		// The timer was left alone when the queue emptied: the next waiter
		// still has its whole second.
		held = must(t, p)
		q := l.join()
		after(999 * time.Millisecond)
		require.False(t, q.isDone())
		after(time.Millisecond)
		require.ErrorIs(t, q.err, ErrTimeout)
		require.NoError(t, held.Release())
	})
}

func TestWaiterWhoseResourceWasRefusedKeepsItsOriginalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Second
		cfg.BeforeAcquire = func(context.Context, *item) error { time.Sleep(time.Second / 2); return errBroken }
		g := make(gate, 1)
		g <- nil
		p, _ := (&shop{create: g.pass}).sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		start := time.Now()
		q := l.join()
		after(300 * time.Millisecond)
		require.NoError(t, held.Release())
		after(500 * time.Millisecond)
		require.False(t, q.isDone(), "it waits again, for a create")
		after(200 * time.Millisecond)
		require.ErrorIs(t, q.err, ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
		var e *AcquireError
		require.ErrorAs(t, q.err, &e)
		require.Equal(t, time.Second, e.Waited)
		g <- nil
	})
}

func TestWaiterWhoseResourceWasRefusedTooLateTimesOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Second
		cfg.BeforeAcquire = func(context.Context, *item) error { time.Sleep(3 * time.Second); return errBroken }
		g := make(gate, 1)
		g <- nil
		p, _ := (&shop{create: g.pass}).sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		after(time.Second / 2)
		require.NoError(t, held.Release())
		after(2 * time.Second) // the timer has found the queue empty
		require.False(t, q.isDone())
		after(time.Second + 1)
		require.ErrorIs(t, q.err, ErrTimeout)
		g <- nil
	})
}

func TestNegativeAcquireTimeoutWaitsForTheContextAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		held := must(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
		defer cancel()
		_, err := p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrTimeout)
		require.NoError(t, held.Release())
	})
}

func TestShortestAcquireTimeoutIsATimeoutAndNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = 1
		p, _ := sell(t, cfg)
		var held Lease[*item]
		for held.IsZero() { // the create itself may take longer than that
			if l, err := p.Acquire(t.Context()); err == nil {
				held = l
			}
		}
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
		require.NoError(t, held.Release())
	})
}

func TestContextErrorsAndTheirCausesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		why := errors.New("the task has ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		_, err := p.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.EqualError(t, err, "pool: acquire: context canceled: the task has ended (max 1, active 0, idle 0, waiting 0)")
		_, err = p.AcquireNow(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, p.Stats().Count, "nothing is created for it")

		held := must(t, p)
		ctx, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err = p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrTimeout)
		require.EqualValues(t, 3, p.Stats().Cancelled)
		require.NoError(t, held.Release())
	})
}

func TestNilContextPanicsWithoutLeavingThePoolLocked(t *testing.T) {
	p, _ := sell(t, quiet(1))
	var none context.Context
	require.Panics(t, func() { _, _ = p.Acquire(none) })
	cycle(t, p, 1)
}

func TestMaxWaitersCountsThoseBeyondMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		cfg := quiet(6)
		cfg.MaxWaiters = 2
		p, _ := (&shop{create: g.pass}).sell(t, cfg)
		l := line{t: t, p: p}
		var all []*queuer
		for range 8 {
			all = append(all, l.join())
		}
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTooManyWaiters)
		require.EqualError(t, err, "pool: acquire: too many waiters (max 6, active 4, idle 0, waiting 8; creating 4, for 0s)")
		for range 6 {
			g <- nil
		}
		synctest.Wait()
		for _, q := range all {
			synctest.Wait()
			require.NoError(t, q.err)
			require.NoError(t, q.lease.Release())
		}
		require.EqualValues(t, 1, p.Stats().Refused)
	})
}

func TestRefusedAcquirerReturnsToAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.MaxWaiters = 1
		cfg.BeforeAcquire = func(_ context.Context, v *item) error {
			time.Sleep(time.Second)
			if v.id == 1 {
				return errBroken
			}
			return nil
		}
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		first := l.join()
		require.NoError(t, held.Release())
		synctest.Wait() // first is in its hook
		second := l.join()
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTooManyWaiters)
		after(2 * time.Second)
		require.NoError(t, first.err)
		require.NoError(t, first.lease.Release())
		after(2 * time.Second)
		require.NoError(t, second.err)
		require.NoError(t, second.lease.Release())
	})
}

// The one that came back later must not move the timer past the one before it.
func TestWaitersThatCameBackIntoTheQueueTimeOutEachAtItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.AcquireTimeout = time.Second
		cfg.BeforeAcquire = func(_ context.Context, v *item) error {
			time.Sleep(time.Duration(v.id) * 50 * time.Millisecond)
			return errBroken
		}
		creates := make(gate, 4)
		creates <- nil
		creates <- nil
		p, _ := (&shop{create: creates.pass}).sell(t, cfg)
		held := mustAll(t, p, 2)
		l := line{t: t, p: p}
		first := l.join()
		after(800 * time.Millisecond)
		second := l.join()
		require.NoError(t, held[0].Release())
		require.NoError(t, held[1].Release())
		after(201 * time.Millisecond)
		require.True(t, first.isDone())
		require.ErrorIs(t, first.err, ErrTimeout)
		require.False(t, second.isDone())
		after(800 * time.Millisecond)
		require.True(t, second.isDone())
		require.ErrorIs(t, second.err, ErrTimeout)
		creates <- nil // those under way in their place
		creates <- nil
	})
}

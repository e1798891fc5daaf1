package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatsBreakActiveDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		creating, checking, destroying := make(gate), make(gate), make(gate)
		cfg := quiet(5)
		cfg.CheckInterval = time.Minute
		cfg.Check = func(context.Context, *item) error { return <-checking }
		s := &shop{destroy: func(*item) { destroying.wait() }}
		p, _ := s.sell(t, cfg)
		held := mustAll(t, p, 4)
		require.NoError(t, held[0].Release())
		require.NoError(t, held[1].Release())
		after(time.Minute)
		s.create = creating.pass
		require.NoError(t, held[2].Discard())
		idle, ok := p.TryAcquire()
		require.True(t, ok)
		l := line{t: t, p: p}
		q := l.join()
		require.NoError(t, idle.Release())
		synctest.Wait()
		q2 := l.join()
		st := p.Stats()
		require.Equal(t, 5, st.Count)
		require.Equal(t, 0, st.Idle)
		require.Equal(t, 5, st.Active)
		require.Equal(t, 2, st.Lent)
		require.Equal(t, 1, st.Creating)
		require.Equal(t, 1, st.Checking)
		require.Equal(t, 1, st.Destroying)
		require.Equal(t, 1, st.Waiting)
		close(creating)
		close(checking)
		close(destroying)
		synctest.Wait()
		require.NoError(t, q.lease.Release())
		require.NoError(t, q2.lease.Release())
		require.NoError(t, held[3].Release())
	})
}

// One who looks twice can tell that nothing moves from Moves alone: Acquires
// is the same after a loan that was refused, and after a release.
func TestMovesCountEveryLoanAndReturnAndNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := false
		cfg := quiet(2)
		cfg.Min = 1
		cfg.BeforeAcquire = func(context.Context, *item) error {
			if refuse {
				refuse = false
				return errBroken
			}
			return nil
		}
		p, _ := sell(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var a, b Lease[*item]
		var q *queuer
		l := line{t: t, p: p}
		for _, step := range []struct {
			name            string
			do              func()
			moves, acquires uint64
		}{
			{"nothing yet", func() {}, 0, 0},
			{"warmed: lent to Warm", func() { require.NoError(t, p.Warm(ctx)) }, 2, 0},
			{"lent", func() { a = must(t, p) }, 3, 1},
			{"a new one lent", func() { b = must(t, p) }, 4, 2},
			{"somebody waits", func() { q = l.join() }, 4, 2},
			{"time goes by", func() { after(time.Hour) }, 4, 2},
			{"handed over", func() { require.NoError(t, a.Release()) }, 6, 3},
			{"given back", func() { require.NoError(t, q.lease.Release()) }, 7, 3},
			{"given back twice", func() { require.ErrorIs(t, a.Release(), ErrStaleLease) }, 7, 3},
			{"lent again", func() { a = must(t, p) }, 8, 4},
			{"discarded", func() { require.NoError(t, a.Discard()) }, 9, 4},
			{"given back", func() { require.NoError(t, b.Release()) }, 10, 4},
			{"refused, and a new one lent", func() { refuse = true; a = must(t, p) }, 13, 5},
			{"lent", func() { b = must(t, p) }, 14, 6},
			{"handed to one who has left", func() {
				var tk ticket
				p.mu.Lock()
				w, err := p.enterLocked(ctx, &tk)
				p.mu.Unlock()
				require.NoError(t, err)
				require.NoError(t, b.Release())
				cancel()
				tk.start = p.since()
				p.abandon(w, &tk)
				require.ErrorIs(t, p.refuseGone(ctx, &tk), context.Canceled)
			}, 17, 6},
			{"given back", func() { require.NoError(t, a.Release()) }, 18, 6},
			{"closed", p.Close, 18, 6},
		} {
			step.do()
			synctest.Wait()
			st := p.Stats()
			require.Equal(t, step.moves, st.Moves, step.name)
			require.Equal(t, step.acquires, st.Acquires, step.name)
		}
	})
}

func TestStatsCountWaitsByTheirLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Second
		p, _ := sell(t, cfg)
		cycle(t, p, 1) // has waited for its create, no time at all
		l := line{t: t, p: p}
		for _, d := range []time.Duration{time.Microsecond, 3 * time.Microsecond, time.Millisecond} {
			held := must(t, p)
			q := l.join()
			after(d - 1) // the pool counts from 1
			require.NoError(t, held.Release())
			synctest.Wait()
			require.NoError(t, q.lease.Release())
		}
		held := must(t, p)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
		defer cancel()
		_, err = p.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, held.Release())

		st := p.Stats()
		require.EqualValues(t, 6, st.Waits)
		require.EqualValues(t, 8, st.Acquires)
		require.Equal(t, time.Second, st.WaitMax)
		require.Equal(t, time.Second+time.Millisecond+14*time.Microsecond-3, st.WaitTotal)
		bounds := WaitBounds()
		require.Len(t, st.WaitHistogram, len(bounds)+1)
		require.Equal(t, time.Microsecond, bounds[0])
		require.Equal(t, 33554432*time.Microsecond, bounds[len(bounds)-1])
		want := map[int]uint64{0: 2, 2: 1, 4: 1, 10: 1, 20: 1}
		for i, n := range st.WaitHistogram {
			require.Equal(t, want[i], n, "bucket %d", i)
		}
	})
}

func TestWaitHistogramBucketsMatchTheirBounds(t *testing.T) {
	bounds := WaitBounds()
	bucketOf := func(d time.Duration) int {
		var s waitStats
		s.record(int64(d))
		for i, n := range s.buckets {
			if n == 1 {
				return i
			}
		}
		return -1
	}
	require.Equal(t, 0, bucketOf(0))
	for i, b := range bounds {
		require.Equal(t, i, bucketOf(b-1), "just below %v", b)
		require.Equal(t, i+1, bucketOf(b), "exactly %v", b)
	}
	require.Equal(t, len(bounds), bucketOf(1<<63-1))
}

func TestWaitOfAnAcquirerWhoseResourceWasRefusedCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.BeforeAcquire = func(context.Context, *item) error { time.Sleep(time.Second); return errBroken }
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		before := p.Stats()
		require.NoError(t, held.Release()) // refused after a second; a fresh one follows
		after(time.Second)
		require.NoError(t, q.err)
		require.NoError(t, q.lease.Release())
		now := p.Stats()
		require.EqualValues(t, 2, now.Waits-before.Waits, "its own, and that for the first create")
		require.InDelta(t, time.Second, now.WaitTotal-before.WaitTotal, 10)
		require.EqualValues(t, 2, now.Acquires)
	})
}

package pool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

func TestResourceOlderThanMaxLifetimeIsReplacedWhenItComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.MaxLifetime, cfg.Jitter = time.Hour, -1
		p, s := sell(t, cfg)
		l := must(t, p)
		after(59 * time.Minute)
		require.NoError(t, l.Release())
		l = must(t, p)
		require.Equal(t, 1, l.Value().id, "still young")
		after(time.Minute)
		require.NoError(t, l.Release())
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())
		require.EqualValues(t, 1, p.Stats().Destroyed.Lifetime)
	})
}

func TestIdleResourceOlderThanMaxLifetimeIsReplacedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.Min = 2
		cfg.MaxLifetime, cfg.Jitter = time.Hour, -1
		p, s := sell(t, cfg)
		cycle(t, p, 1)
		after(59 * time.Minute)
		require.Empty(t, s.gone())
		after(17 * time.Minute)
		require.ElementsMatch(t, []int{1, 2}, s.gone())
		require.Equal(t, 2, p.Stats().Idle, "Min is kept")
	})
}

func TestJitterIsEachResourcesOwnAndNotTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(100)
		cfg.MaxLifetime, cfg.Jitter = 10*time.Nanosecond, 90*time.Nanosecond
		p, _ := sell(t, cfg)
		leases := mustAll(t, p, 100)
		now := p.since()
		different := map[int64]bool{}
		for _, l := range leases {
			life := l.r.expires - now
			require.GreaterOrEqual(t, life, int64(10))
			require.Less(t, life, int64(100))
			different[life] = true
			require.NoError(t, l.Release())
		}
		require.Greater(t, len(different), 20)
	})
}

func TestLifetimeNearTheEndOfTimeDoesNotOverflow(t *testing.T) {
	cfg := quiet(1)
	cfg.MaxLifetime, cfg.Jitter = 1<<63-1, 1<<63-1
	p, s := sell(t, cfg)
	cycle(t, p, 1)
	cycle(t, p, 1)
	require.Equal(t, 1, s.madeSoFar())
}

func TestMaxIdleTimeSparesMinAndMinIdle(t *testing.T) {
	for _, c := range []struct{ min, minIdle, left int }{{0, 0, 0}, {2, 0, 2}, {0, 3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := quiet(5)
			cfg.Min, cfg.MinIdle = c.min, c.minIdle
			cfg.MaxIdleTime = time.Minute
			p, _ := sell(t, cfg)
			cycle(t, p, 5)
			after(59 * time.Second)
			require.Equal(t, 5, p.Stats().Idle)
			after(17 * time.Second)
			require.Equal(t, c.left, p.Stats().Idle)
			after(time.Hour)
			require.Equal(t, c.left, p.Stats().Idle)
			require.EqualValues(t, 5-c.left, p.Stats().Destroyed.IdleTime)
		})
	}
}

func TestResourcesInUseAreSparedByMaxIdleTimeAndTheOthersAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.MaxIdleTime = time.Minute
		p, s := sell(t, cfg)
		cycle(t, p, 3)
		for range 20 { // LIFO: always number 3
			after(10 * time.Second)
			cycle(t, p, 1)
		}
		require.ElementsMatch(t, []int{1, 2}, s.gone())
	})
}

func TestMinIdleIsKeptReadyWhileOthersAreLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(5)
		cfg.MinIdle = 2
		p, _ := sell(t, cfg)
		var leases []Lease[*item]
		for want := range 6 {
			synctest.Wait()
			st := p.Stats()
			if want > 0 {
				require.Equal(t, min(2, 5-want), st.Idle)
			}
			if want < 5 {
				leases = append(leases, must(t, p))
			}
		}
		for _, l := range leases {
			require.NoError(t, l.Release())
		}
	})
}

func TestHealthCheckTouchesIdleOnesOnlyReplacesDeadOnesAndRefills(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(4)
				cfg.Min = 3
				cfg.CheckInterval = time.Minute
				checked := make(chan *item, 100)
				var dead atomic.Pointer[item]
				cfg.Check = func(_ context.Context, v *item) error {
					checked <- v
					if v == dead.Load() {
						return fail()
					}
					return nil
				}
				p, s := sell(t, cfg)
				leases := mustAll(t, p, 3)
				dead.Store(leases[1].Value())
				require.NoError(t, leases[0].Release())
				require.NoError(t, leases[1].Release())
				after(time.Minute)
				require.Equal(t, leases[0].Value(), <-checked)
				require.Equal(t, leases[1].Value(), <-checked)
				require.Empty(t, checked, "the third is lent")
				require.Equal(t, []int{dead.Load().id}, s.gone())
				require.Equal(t, 2, p.Stats().Idle)
				require.EqualValues(t, 1, p.Stats().Destroyed.CheckFailed)
				require.NoError(t, leases[2].Release())
			})
		})
	}
}

// TestHealthCheckFindsWhatDiesWhileNobodyUsesThePool: for most resources a check costs nothing, and
// the first borrower after a pause must not find them dead.
func TestHealthCheckFindsWhatDiesWhileNobodyUsesThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.Min = 2
		cfg.CheckInterval, cfg.MaxIdleTime = time.Minute, 10*time.Minute
		var dead, checks atomic.Int64
		cfg.Check = func(_ context.Context, v *item) error {
			checks.Add(1)
			if int64(v.id) <= dead.Load() {
				return errBroken
			}
			return nil
		}
		p, s := sell(t, cfg)
		cycle(t, p, 3)
		after(5 * time.Minute)
		require.EqualValues(t, 3*5, checks.Load())
		after(time.Hour)
		require.Equal(t, 2, p.Stats().Idle, "a check is no use: what Min does not need has reached MaxIdleTime")
		dead.Store(3)
		after(time.Minute)
		require.ElementsMatch(t, []int{1, 2, 3}, s.gone())
		require.Equal(t, 2, p.Stats().Idle, "Min is filled again")
		checks.Store(0)
		after(time.Minute)
		require.EqualValues(t, 2, checks.Load())
	})
}

func TestHealthCheckAfterUseLeavesRoundsOutWhileNobodyUsesThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.CheckInterval, cfg.CheckAfterUse = time.Minute, true
		var checks atomic.Int64
		cfg.Check = func(context.Context, *item) error { checks.Add(1); return nil }
		p, _ := sell(t, cfg)
		cycle(t, p, 3)
		for want := 3; want <= 9; want += 3 {
			after(time.Minute)
			require.EqualValues(t, want, checks.Load())
			after(time.Hour)
			require.EqualValues(t, want, checks.Load(), "nobody has used the pool since the round")
			cycle(t, p, 1)
		}
	})
}

func TestHealthCheckChangesNeitherTheOrderOfLendingNorTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.CheckInterval = 20 * time.Second
		cfg.MaxIdleTime = time.Minute
		cfg.Check = func(context.Context, *item) error { time.Sleep(time.Second); return nil }
		p, _ := sell(t, cfg)
		cycle(t, p, 3)
		after(21*time.Second + time.Second/2)
		require.Equal(t, 1, p.Stats().Checking, "number 2, after number 1")
		l := must(t, p)
		require.Equal(t, 3, l.Value().id)
		require.NoError(t, l.Release())
		after(10 * time.Second)
		leases := mustAll(t, p, 3)
		require.Equal(t, 3, leases[0].Value().id)
		require.Equal(t, 2, leases[1].Value().id)
		require.Equal(t, 1, leases[2].Value().id)
		for i := range leases {
			require.NoError(t, leases[2-i].Release())
		}
		after(76 * time.Second)
		require.Zero(t, p.Stats().Count, "they aged, checks or not")
	})
}

func TestResourceUsedSinceTheRoundOfChecksBeganIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.CheckInterval = time.Minute
		var checks atomic.Int32
		cfg.Check = func(context.Context, *item) error { checks.Add(1); time.Sleep(time.Second); return nil }
		p, _ := sell(t, cfg)
		cycle(t, p, 2)
		after(time.Minute + time.Second/2) // the older one is being checked
		cycle(t, p, 1)
		after(10 * time.Second)
		require.EqualValues(t, 1, checks.Load(), "the other has just been used")
	})
}

func TestWaiterGetsTheResourceThatWasBeingChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CheckInterval = time.Minute
		cfg.Check = func(context.Context, *item) error { time.Sleep(time.Second); return nil }
		p, s := sell(t, cfg)
		cycle(t, p, 1)
		after(time.Minute)
		require.Equal(t, 1, p.Stats().Checking)
		cycle(t, p, 1)
		require.Equal(t, 1, s.madeSoFar())
	})
}

func TestCheckThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CheckInterval, cfg.CheckTimeout = time.Minute, time.Second
		stuck := make(gate)
		cfg.Check = func(context.Context, *item) error { return <-stuck }
		p, s := sell(t, cfg)
		cycle(t, p, 1)
		after(time.Minute + 1999*time.Millisecond)
		require.Equal(t, 1, p.Stats().Checking)
		after(time.Millisecond)
		require.Equal(t, []int{1}, s.gone())
		cycle(t, p, 1)
		close(stuck)
	})
}

func TestCheckThatHeedsItsContextHasReturnedBeforeDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.CheckInterval, cfg.CheckTimeout = time.Minute, time.Second
		var checking atomic.Bool
		cfg.Check = func(ctx context.Context, _ *item) error {
			checking.Store(true)
			defer checking.Store(false)
			<-ctx.Done()
			time.Sleep(time.Second / 2) // cleans up
			return ctx.Err()
		}
		p, s := (&shop{destroy: func(*item) {
			if checking.Load() {
				t.Error("destroyed while it is checked")
			}
		}}).sell(t, cfg)
		cycle(t, p, 1)
		after(time.Minute + 2*time.Second)
		require.Equal(t, []int{1}, s.gone())
		cycle(t, p, 1)
		after(58*time.Second + time.Second/4) // the next round has begun
		require.Equal(t, 1, p.Stats().Checking)
		p.Close() // ends the check's context
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Checking)
		require.NoError(t, p.CloseContext(t.Context()))
		require.EqualValues(t, 1, p.Stats().Destroyed.Closed)
	})
}

func TestIdleTimeBeginsWithTheReleaseButForATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.MaxIdleTime = time.Minute
		p, _ := sell(t, cfg)
		idleSince := func() time.Duration {
			p.mu.Lock()
			defer p.mu.Unlock()
			return time.Duration(p.since() - p.idle.at(0).idleSince)
		}
		cycle(t, p, 1)
		for range 100 {
			after(7 * time.Millisecond)
			cycle(t, p, 1)
			require.LessOrEqual(t, idleSince(), bubble.Tick)
		}
		after(10 * time.Second)
		cycle(t, p, 1)
		require.Zero(t, idleSince(), "the first release after a pause reads the exact time")
	})
}

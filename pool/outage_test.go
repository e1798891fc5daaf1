package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// server is who creates: it can be away, and remembers when it was asked.
type server struct {
	mu    sync.Mutex
	err   error // why it is away
	asked []time.Time
}

func (s *server) create(context.Context) error {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return s.err
}

// is makes the server go away, or come back, and forget who has asked.
func (s *server) is(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.asked = err, nil
}

// pauses are the times between those who asked.
func (s *server) pauses() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.asked); i++ {
		all = append(all, s.asked[i].Sub(s.asked[i-1]))
	}
	return all
}

func (s *server) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func TestRefillsBackOffUntilOneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(5)
		cfg.Min, cfg.MinIdle = 3, 2
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		l := must(t, p)
		synctest.Wait()
		after(time.Second)
		require.Equal(t, 3, p.Stats().Count)
		s.is(errBroken)
		require.NoError(t, l.Discard())
		p.Flush()
		after(time.Minute)
		pauses := s.pauses()
		most := 0.1
		for _, pause := range pauses[2:] { // three were started at once, before the first had failed
			require.GreaterOrEqual(t, pause.Seconds(), most)
			require.LessOrEqual(t, pause.Seconds(), most*1.2+0.01)
			most = min(2*most, 5)
		}
		require.Less(t, len(pauses), 20)
		s.is(nil)
		after(6 * time.Second)
		require.Equal(t, 3, p.Stats().Idle)
		s.is(errBroken)
		p.Flush()
		after(time.Second)
		require.Greater(t, s.times(), 4, "the success has made the pauses short again")
	})
}

// Whoever waits while creates for Min and MinIdle fail beside its own is told of the
// first failure.
func TestErrorOfItsOwnCreateReachesTheWaiterWhateverElseIsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, forMin := make(gate), make(gate)
		cfg := quiet(4)
		cfg.Min, cfg.MinIdle = 2, 1
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
		own <- errBroken
		synctest.Wait()
		require.True(t, q.isDone())
		require.EqualError(t, q.err, "pool: create: broken")

		// One who came when a create for Min was running waits for that.
		later := l.join()
		forMin <- errBroken
		synctest.Wait()
		require.True(t, later.isDone() || p.Stats().Creating > 0)
		for p.Stats().Creating > 0 || !later.isDone() {
			forMin <- errBroken
			synctest.Wait()
		}
		require.ErrorIs(t, later.err, errBroken)
		s := p.Stats()
		require.Zero(t, s.Count)
		p.Close()
	})
}

func TestCreatesDuringAnOutageDoNotDependOnTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(10)
		cfg.Min, cfg.MinIdle = 2, 1
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		require.NoError(t, must(t, p).Discard())
		s.is(errBroken)
		p.Flush()
		var slowest, failed atomic.Int64
		crowd(8, 5*time.Second, func() {
			began := time.Now()
			l, err := p.Acquire(t.Context())
			if err == nil {
				_ = l.Discard() // made before the outage
				return
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("not the error of a create: %v", err)
			}
			failed.Add(1)
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			time.Sleep(time.Millisecond)
		})
		t.Logf("%d creates, %d acquires failed, the slowest after %v", s.times(), failed.Load(), time.Duration(slowest.Load()))
		require.Less(t, s.times(), 150)
		require.Greater(t, failed.Load(), int64(200))
		require.LessOrEqual(t, time.Duration(slowest.Load()), longestPause+2*time.Millisecond)

		s.is(nil)
		began := time.Now()
		require.NoError(t, must(t, p).Release(), "the first that comes")
		require.Less(t, time.Since(began), longestPause+2*time.Millisecond)
		after(soon)
		require.Equal(t, 2, p.Stats().Count, "the success has called for Min, too")
	})
}

// crowd has n goroutines call f again and again for that long.
func crowd(n int, long time.Duration, f func()) {
	var all sync.WaitGroup
	for end := time.Now().Add(long); n > 0; n-- {
		all.Go(func() {
			for time.Now().Before(end) {
				f()
			}
		})
	}
	all.Wait()
}

// outOfReach has p in an outage.
func outOfReach(t *testing.T, p *Pool[*item]) {
	t.Helper()
	for range manyFailures {
		_, err := p.Acquire(t.Context())
		require.EqualError(t, err, "pool: create: broken")
	}
}

func TestAcquirersInAPauseGetTheResultOfTheNextCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.is(errBroken)
		p, _ := (&shop{create: s.create}).sell(t, quiet(2))
		outOfReach(t, p)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		_, err := p.AcquireNow(t.Context())
		require.ErrorIs(t, err, ErrNoneNow)
		require.Equal(t, manyFailures, s.times())
		after(shortestPause + 2*time.Millisecond)
		require.Equal(t, manyFailures+1, s.times())
		for _, q := range []*queuer{first, second} {
			require.True(t, q.isDone(), "the create was for both")
			require.EqualError(t, q.err, "pool: create: broken")
		}
		s.is(nil)
		began := time.Now()
		require.NoError(t, must(t, p).Release())
		require.LessOrEqual(t, time.Since(began), 2*shortestPause+time.Millisecond, "no longer than a pause and a create")
		require.NoError(t, must(t, p).Release())
		require.Equal(t, 1, s.times())
	})
}

// Where creates fail and succeed by turns, a hundred failures in a row are chance.
func TestManyFailuresAfterOthersThatASuccessHasEndedAreNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		p, _ := (&shop{create: s.create}).sell(t, quiet(2))
		fails := func(times int) {
			for range times {
				require.Zero(t, p.outage.pause)
				_, err := p.Acquire(t.Context())
				require.ErrorIs(t, err, errBroken)
			}
		}
		succeeds := func() {
			s.is(nil)
			require.NoError(t, must(t, p).Discard())
			s.is(errBroken)
		}
		succeeds() // nothing had failed before
		fails(manyFailures)
		require.Equal(t, shortestPause, p.outage.pause)
		time.Sleep(shortestPause)
		succeeds() // that was an outage
		fails(1)
		succeeds()
		fails(mixedFailures)
		require.Equal(t, shortestPause, p.outage.pause)
		time.Sleep(shortestPause)
		succeeds()
		fails(1)
		succeeds()
		time.Sleep(mixedLasts)
		fails(manyFailures)
		require.Equal(t, shortestPause, p.outage.pause)
		succeeds()
	})
}

// A few failures are an outage if they go on for a second.
func TestFewFailuresOverASecondAreAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.is(errBroken)
		p, _ := (&shop{create: s.create}).sell(t, quiet(2))
		for range fewFailures {
			require.Zero(t, p.outage.pause)
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, errBroken)
			time.Sleep(300 * time.Millisecond)
		}
		require.Equal(t, shortestPause, p.outage.pause)
	})
}

// Of the creates every second one fails. Each failure is that of the acquirer who has begun it,
// and where that one was served meanwhile it is nobody's.
func TestCreateThatFailsFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates := []gate{make(gate), make(gate), make(gate)}
		var n atomic.Int32
		p, _ := (&shop{create: func(context.Context) error {
			if i := n.Add(1) - 2; i >= 0 {
				return <-gates[i]
			}
			return nil
		}}).sell(t, quiet(3))
		held := must(t, p)
		l := line{t: t, p: p}
		first, second, third := l.join(), l.join(), l.join() // the third has no create: Max is 3
		require.NoError(t, held.Release())
		synctest.Wait()
		require.True(t, first.isDone())
		gates[0] <- errBroken // the first one's
		synctest.Wait()
		require.False(t, second.isDone())
		require.False(t, third.isDone())
		gates[1] <- errBroken // the second one's
		synctest.Wait()
		require.ErrorIs(t, second.err, errBroken)
		require.False(t, third.isDone())
		gates[2] <- nil // the third one's, begun when the first one's had failed
		synctest.Wait()
		require.NoError(t, third.err)
		require.True(t, third.isDone())
		require.NoError(t, first.lease.Release())
		require.NoError(t, third.lease.Release())
	})
}

func TestAcquirersInThePauseAfterARefusalGetItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.is(errBroken)
		cfg := quiet(2)
		cfg.Denied = func(error) bool { return true }
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		_, err := p.Acquire(t.Context())
		require.EqualError(t, err, "pool: create: broken")
		time.Sleep(4 * time.Millisecond)
		for _, acquire := range []func(context.Context) (Lease[*item], error){p.Acquire, p.AcquireNow} {
			_, err := acquire(t.Context())
			require.EqualError(t, err, "pool: create: broken (not tried again: the last try was refused 4ms ago)")
			var create *CreateError
			require.ErrorAs(t, err, &create)
			require.Equal(t, 4*time.Millisecond, create.Ago)
			require.ErrorIs(t, err, errBroken)
		}
		require.Equal(t, 1, s.times())
		time.Sleep(shortestDenied - 4*time.Millisecond)
		s.is(nil)
		l := must(t, p)
		require.NoError(t, l.Release())
		require.Equal(t, 1, s.times(), "at once")
	})
}

func TestAcquirersInThePauseAfterARefusalWaitWhereSomethingMayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(2)
		cfg.Denied = func(err error) bool { return err == errBroken }
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		held := must(t, p)
		s.is(errBroken)
		for range 5 {
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, errBroken)
		}
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		_, err := p.AcquireNow(t.Context())
		require.ErrorIs(t, err, ErrNoneNow)
		require.NoError(t, held.Release())
		synctest.Wait()
		require.True(t, first.isDone())
		require.NoError(t, first.err)
		require.False(t, second.isDone())
		tries := s.times()
		after(longestDenied + 2*time.Millisecond)
		require.True(t, second.isDone(), "the next create was for it")
		require.EqualError(t, second.err, "pool: create: broken")
		require.Equal(t, tries+1, s.times())
		require.NoError(t, first.lease.Release())
	})
}

func TestWaiterDoesNotDependOnACreateForMinThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(gate)
		var away atomic.Bool
		var hangs atomic.Int32
		cfg := quiet(4)
		cfg.Min = 2
		p, _ := (&shop{create: func(ctx context.Context) error {
			switch {
			case !away.Load() || ctx.Value(ctxKey{}) != nil:
				return nil
			case hangs.Add(1) > 1:
				return <-hang
			}
			return errBroken
		}}).sell(t, cfg)
		l := must(t, p)
		synctest.Wait()
		away.Store(true)
		require.NoError(t, l.Discard())
		after(150 * time.Millisecond)
		require.Equal(t, 1, p.Stats().Creating, "for Min")
		p.Flush()
		got, err := p.Acquire(context.WithValue(t.Context(), ctxKey{}, "x"))
		require.NoError(t, err)
		require.NoError(t, got.Release())
		away.Store(false)
		close(hang)
	})
}

func TestRefusalIsNotRepeatedByItselfForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(5)
		cfg.Min, cfg.MinIdle = 3, 2
		cfg.Denied = func(err error) bool { return errors.Is(err, errBroken) }
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		s.is(errBroken)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, errBroken)
		synctest.Wait()
		first := s.times()
		after(5*time.Second - 5*time.Millisecond)
		require.Equal(t, first, s.times())
		after(time.Minute)
		for _, pause := range s.pauses()[first-1:] {
			require.GreaterOrEqual(t, pause, 5*time.Second)
		}
		require.Greater(t, s.times(), first+5)

		// Those who ask share it.
		s.is(errBroken)
		crowd(8, 5*time.Second, func() {
			if _, err := p.Acquire(t.Context()); !errors.Is(err, errBroken) {
				t.Errorf("not the error of a create: %v", err)
			}
			time.Sleep(time.Millisecond)
		})
		require.Less(t, s.times(), 12)
	})
}

// Each create may have other credentials: one refusal fails one waiter.
func TestRefusalOfFreshCredentialsIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fresh := range []bool{false, true} {
			var s server
			cfg := quiet(1)
			cfg.Denied = func(err error) bool { return errors.Is(err, errBroken) }
			cfg.FreshCredentials = fresh
			p, _ := (&shop{create: s.create}).sell(t, cfg)
			s.is(errBroken)
			time.AfterFunc(1500*time.Microsecond, func() { s.is(nil) }) // in the second create
			var failed atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					l, err := p.Acquire(t.Context())
					if err != nil {
						failed.Add(1)
						return
					}
					if err := l.Release(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if fresh {
				require.EqualValues(t, 1, failed.Load())
			} else {
				require.EqualValues(t, 8, failed.Load())
			}
		}
	})
}

func TestDeniedThatPanicsSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(1)
		cfg.Denied = func(error) bool { panic("no more") }
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		s.is(errBroken)
		for range 2 {
			_, err := p.Acquire(t.Context())
			require.EqualError(t, err, "pool: create: broken")
		}
	})
}

func TestWarmTriesAtOnceDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		cfg := quiet(2)
		cfg.Min = 1
		p, _ := (&shop{create: s.create}).sell(t, cfg)
		s.is(errBroken)
		for range 10 {
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, errBroken)
		}
		s.is(nil)
		require.NoError(t, p.Warm(t.Context()))
		require.Equal(t, 1, p.Stats().Idle)
	})
}

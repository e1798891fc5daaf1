package pool

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatesChangeByHandAndHaveNames(t *testing.T) {
	p, _ := sell(t, quiet(1))
	require.Equal(t, Active, p.State())
	p.Deactivate()
	require.Equal(t, Inactive, p.State())
	p.Recover()
	require.Equal(t, Recovering, p.State())
	p.Activate()
	p.Activate()
	require.Equal(t, Active, p.State())
	require.EqualValues(t, 3, p.Stats().Transitions)
	require.Equal(t, "active inactive recovering State(9)",
		Active.String()+" "+Inactive.String()+" "+Recovering.String()+" "+State(9).String())
}

func TestInactivePoolRefusesAtOnceAndWakesItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(2))
		held := mustAll(t, p, 2)
		l := line{t: t, p: p}
		waiters := []*queuer{l.join(), l.join()}
		p.Deactivate()
		synctest.Wait()
		for _, w := range waiters {
			require.ErrorIs(t, w.err, ErrUnavailable)
		}
		require.NoError(t, held[0].Release())
		require.Equal(t, 1, p.Stats().Idle, "it comes back as always")
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		require.EqualError(t, err, "pool: acquire: unavailable: the circuit breaker is open (max 2, active 1, idle 1, waiting 0)")
		_, err = p.AcquireNow(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		require.ErrorIs(t, p.Warm(t.Context()), ErrUnavailable)
		require.EqualValues(t, 5, p.Stats().Unavailable)
		p.Activate()
		l2, ok := p.TryAcquire()
		require.True(t, ok)
		require.NoError(t, l2.Release())
		require.NoError(t, held[1].Release())
	})
}

func TestInactivePoolCreatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(3)
		cfg.Min = 3
		cfg.CheckInterval = time.Minute
		p, s := sell(t, cfg)
		held := mustAll(t, p, 3)
		p.Deactivate()
		for _, h := range held {
			require.NoError(t, h.Discard())
		}
		after(time.Hour)
		require.Equal(t, 3, s.madeSoFar())
		p.Activate()
		synctest.Wait()
		require.Equal(t, 3, p.Stats().Idle, "filled up again")
	})
}

func TestRecoveringLetsOneProbeThroughAtATime(t *testing.T) {
	for name, acquire := range map[string]func(*Pool[*item]) (Lease[*item], error){
		"Acquire":    func(p *Pool[*item]) (Lease[*item], error) { return p.Acquire(context.Background()) },
		"AcquireNow": func(p *Pool[*item]) (Lease[*item], error) { return p.AcquireNow(context.Background()) },
		"TryAcquire": func(p *Pool[*item]) (Lease[*item], error) {
			l, ok := p.TryAcquire()
			if !ok {
				return l, ErrNoneNow
			}
			return l, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := false
				cfg := quiet(3)
				cfg.BeforeRelease = func(context.Context, *item) error {
					if bad {
						return errBroken
					}
					return nil
				}
				p, _ := sell(t, cfg)
				cycle(t, p, 3)
				p.Recover()
				probe, err := acquire(p)
				require.NoError(t, err)
				_, err = p.Acquire(t.Context())
				require.ErrorIs(t, err, ErrUnavailable)

				// Neither good nor bad: the next one may probe.
				require.NoError(t, probe.Discard())
				synctest.Wait()
				require.Equal(t, Recovering, p.State())
				probe, err = acquire(p)
				require.NoError(t, err)

				bad = true
				require.NoError(t, probe.Release())
				require.Equal(t, Inactive, p.State())

				bad = false
				p.Recover()
				probe, err = acquire(p)
				require.NoError(t, err)
				require.NoError(t, probe.Release())
				require.Equal(t, Active, p.State())
				cycle(t, p, 2)
			})
		})
	}
}

func TestCreateProbesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(3))
		l := line{t: t, p: p}
		p.Recover()
		probe := l.join()
		require.Equal(t, 1, p.Stats().Creating)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		g <- errBroken
		synctest.Wait()
		require.ErrorIs(t, probe.err, errBroken)
		require.Equal(t, Inactive, p.State())

		p.Recover()
		probe = l.join()
		g <- nil
		synctest.Wait()
		require.NoError(t, probe.err)
		require.Equal(t, Active, p.State(), "the create has shown that it works")
		require.NoError(t, probe.lease.Release())
	})
}

func TestProbeThatLeavesMakesWayForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, _ := (&shop{create: g.pass}).sell(t, quiet(1))
		l := line{t: t, p: p}
		p.Recover()
		probe := l.join()
		probe.cancel()
		synctest.Wait()
		require.ErrorIs(t, probe.err, context.Canceled)
		next := l.join()
		require.False(t, next.isDone())
		require.Equal(t, 1, p.Stats().Creating, "the create that is under way will do")
		g <- nil
		synctest.Wait()
		require.NoError(t, next.err)
		require.NoError(t, next.lease.Release())
	})
}

func TestProbeThatCreatesForItselfAloneOrTimesOutMakesWayToo(t *testing.T) {
	for name, leave := range map[string]func(*queuer){
		"cancelled": func(q *queuer) { q.cancel() },
		"timed out": func(*queuer) { time.Sleep(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				cfg := quiet(2)
				cfg.AcquireTimeout = time.Second
				p, _ := (&shop{create: g.pass}).sell(t, cfg)
				l := line{t: t, p: p}
				p.Recover()
				var probe *queuer
				if name == "cancelled" {
					probe = l.joinWith(p.AcquireNow)
				} else {
					probe = l.join()
				}
				leave(probe)
				synctest.Wait()
				require.Error(t, probe.err)
				next := l.join()
				require.False(t, next.isDone(), "it is let in")
				g <- nil
				synctest.Wait()
				require.NoError(t, next.err)
				require.NoError(t, next.lease.Release())
			})
		})
	}
}

func TestReleaseOfAResourceLentEarlierSaysNothingAboutTheRecovery(t *testing.T) {
	for name, strategy := range map[string]Strategy{"by hand": nil, "strategy": ConsecutiveFailures(1, 0)} {
		t.Run(name, func(t *testing.T) {
			cfg := quiet(2)
			cfg.Strategy = strategy
			p, _ := sell(t, cfg)
			old := must(t, p)
			p.Recover()
			require.NoError(t, old.Release())
			require.Equal(t, Recovering, p.State())
			cycle(t, p, 1)
			require.Equal(t, Active, p.State())
		})
	}
}

func TestRefusedProbeGoesOnProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.BeforeAcquire = func(_ context.Context, v *item) error {
			if v.id == 2 {
				return errBroken
			}
			return nil
		}
		p, _ := sell(t, cfg)
		cycle(t, p, 2)
		p.Recover()
		probe := must(t, p)
		require.Equal(t, 1, probe.Value().id)
		_, ok := p.TryAcquire()
		require.False(t, ok)
		require.NoError(t, probe.Release())
		require.Equal(t, Active, p.State())
	})
}

func TestTryAcquireProbesWithTheNextOneWhenOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		var refuse *item
		cfg.BeforeAcquire = func(_ context.Context, v *item) error {
			if v == refuse {
				return errBroken
			}
			return nil
		}
		p, _ := sell(t, cfg)
		leases := mustAll(t, p, 2)
		refuse = leases[1].Value()
		require.NoError(t, leases[0].Release())
		require.NoError(t, leases[1].Release())
		p.Recover()
		probe, ok := p.TryAcquire()
		require.True(t, ok)
		require.Equal(t, leases[0].Value(), probe.Value())
		require.NoError(t, probe.Release())
		require.Equal(t, Active, p.State())
	})
}

func TestWaitersOfAPoolSetRecoveringByHandProbeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(2))
		held := mustAll(t, p, 2)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		p.Recover()
		require.NoError(t, held[0].Release())
		require.NoError(t, held[1].Release())
		synctest.Wait()
		require.NoError(t, first.err)
		require.True(t, first.isDone())
		require.False(t, second.isDone(), "one at a time, although one is idle")
		require.Equal(t, 1, p.Stats().Idle)
		require.NoError(t, first.lease.Discard())
		synctest.Wait()
		require.True(t, second.isDone())
		require.NoError(t, second.lease.Release())
		require.Equal(t, Active, p.State())
	})
}

func TestDeactivateLeavesNoOneWithAResourceOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		require.NoError(t, held.Release()) // first has it and may not have run
		p.Deactivate()
		synctest.Wait()
		require.NoError(t, first.err, "it was handed over before")
		require.ErrorIs(t, second.err, ErrUnavailable)
		require.NoError(t, first.lease.Release())
		require.Equal(t, 1, p.Stats().Idle)
	})
}

// diary is a Strategy that writes down what it is told.
type diary struct {
	mu       sync.Mutex
	log      []string
	next     State
	onAction func()
}

func (d *diary) note(s string) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, s)
	if d.onAction != nil {
		d.onAction()
	}
	return d.next
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.log...)
}

func (d *diary) Success(now State) State { return d.note("success " + now.String()) }
func (d *diary) Failure(now State, err error) State {
	return d.note("failure " + now.String() + " " + err.Error())
}
func (d *diary) Refused(since time.Duration) State { return d.note("refused " + since.String()) }

func TestStrategyIsToldOfCreatesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := false
		cfg := quiet(2)
		cfg.Strategy = d
		cfg.BeforeRelease = func(_ context.Context, v *item) error {
			if broken {
				return errBroken
			}
			return nil
		}
		s := &shop{}
		p, _ := s.sell(t, cfg)
		cycle(t, p, 1)
		require.Equal(t, []string{"success active", "success active"}, d.read())
		require.NoError(t, must(t, p).Discard())
		synctest.Wait()
		require.Len(t, d.read(), 2, "a Discard is neither")
		l := must(t, p)
		broken = true
		require.NoError(t, l.Release())
		synctest.Wait()
		s.create = func(context.Context) error { return errors.New("down") }
		_, err := p.Acquire(t.Context())
		require.ErrorContains(t, err, "down")
		require.Equal(t, []string{"success active", "failure active broken", "failure active down"}, d.read()[2:])
		p.Deactivate()
		d.next = Inactive
		after(time.Minute)
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		require.Equal(t, "refused 1m0s", d.read()[5])
	})
}

func TestStrategyThatPanicsOrExitsCostsNothing(t *testing.T) {
	for name, action := range map[string]func(){"panic": func() { panic("trouble") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				cfg := quiet(1)
				cfg.Strategy = d
				p, _ := sell(t, cfg)
				d.onAction = action
				l := must(t, p) // the create's goroutine may end, its product may not be lost
				go func() { _ = l.Release() }()
				synctest.Wait()
				require.False(t, l.Valid())
				require.Equal(t, 1, p.Stats().Idle)
				require.Equal(t, Active, p.State())
			})
		})
	}
}

func TestAnswerOfAStrategyThatIsLateIsDropped(t *testing.T) {
	p, _ := sell(t, quiet(1))
	p.Deactivate()
	p.mu.Lock()
	p.applyLocked(verdict{given: true, from: Active, next: Recovering})
	p.mu.Unlock()
	require.Equal(t, Inactive, p.State())
}

func TestConsecutiveFailuresOpensCoolsDownProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{create: func(context.Context) error { return errBroken }}
		cfg := quiet(1)
		cfg.Strategy = ConsecutiveFailures(3, time.Minute)
		p, _ := s.sell(t, cfg)
		for range 3 {
			require.Equal(t, Active, p.State())
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, errBroken)
		}
		require.Equal(t, Inactive, p.State())
		after(59 * time.Second)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		var e *AcquireError
		require.ErrorAs(t, err, &e)
		require.Equal(t, errBroken, e.LastCreateErr, "it says what went wrong")
		after(time.Second)
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, errBroken, "this was the probe")
		require.Equal(t, Inactive, p.State())
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrUnavailable, "another cool-down")
		after(time.Minute)
		s.create = nil
		cycle(t, p, 1)
		require.Equal(t, Active, p.State())
	})
}

func TestConsecutiveFailuresAreForgottenAfterASuccess(t *testing.T) {
	s := ConsecutiveFailures(2, time.Minute)
	require.Equal(t, Active, s.Failure(Active, errBroken))
	require.Equal(t, Active, s.Success(Active))
	require.Equal(t, Active, s.Failure(Active, errBroken))
	require.Equal(t, Inactive, s.Failure(Active, errBroken))
	require.Equal(t, Inactive, s.Refused(59*time.Second))
	require.Equal(t, Recovering, s.Refused(time.Minute))
	require.Equal(t, Active, s.Success(Recovering))
	require.Equal(t, Inactive, ConsecutiveFailures(0, 0).Failure(Active, errBroken), "0 counts as 1")
	require.Equal(t, Inactive, ConsecutiveFailures(9, 0).Failure(Recovering, errBroken))
}

// Acquirers that come back into the queue stand before the probe if they came before it. The first of them
// probes: otherwise it would wait for the probe's end, and the probe for its turn.
func TestWhoComesBackBeforeTheProbeProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		g := make(gate)
		cfg.BeforeAcquire = func(ctx context.Context, _ *item) error { return g.pass(ctx) }
		p, _ := sell(t, cfg)
		cycle(t, p, 1)
		l := line{t: t, p: p}
		refused := l.join() // in BeforeAcquire
		p.Recover()
		probe := l.join()
		require.Equal(t, 1, p.Stats().Waiting)
		g <- errBroken
		after(time.Second)
		require.True(t, refused.isDone())
		require.NoError(t, refused.err)
		go func() { g <- nil }()
		require.NoError(t, refused.lease.Release())
		synctest.Wait()
		require.True(t, probe.isDone())
		require.NoError(t, probe.err)
		require.Equal(t, Active, p.State())
		require.NoError(t, probe.lease.Release())
	})
}

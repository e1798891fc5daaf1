package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// rush is an open loop: acquirers come at random (Poisson), whatever becomes of those before.
type rush struct {
	load     float64 // of what the pool can serve
	low      float64 // the part of PriorityLow
	lasts    time.Duration
	deadline time.Duration
	hold     func(*rand.Rand) time.Duration
	stalls   []stall // in the order of time
	seed     uint64

	mu                sync.Mutex
	came, refused     [2]int // by priority
	served, left      [2]int // got a resource, or gave up
	inTime, afterward int    // served within the deadline; of them those that came after the first two seconds
	took              []time.Duration
}

const (
	rushMax  = 4
	rushHold = 20 * time.Millisecond
)

func steady(*rand.Rand) time.Duration { return rushHold }

func (r *rush) run(t *testing.T, p *Pool[*item]) {
	random := rand.New(rand.NewPCG(17+r.seed, uint64(r.load*100)))
	begun := time.Now()
	var all sync.WaitGroup
	for next := time.Duration(0); ; {
		next += time.Duration(random.ExpFloat64() * float64(rushHold) / rushMax / r.load)
		if next > r.lasts {
			break
		}
		time.Sleep(time.Until(begun.Add(r.after(next, 0))))
		priority := PriorityNormal
		if random.Float64() < r.low {
			priority = PriorityLow
		}
		hold := r.hold(random)
		all.Go(func() { r.one(t, p, priority, hold, next, begun) })
	}
	all.Wait()
}

func (r *rush) one(t *testing.T, p *Pool[*item], priority Priority, hold, at time.Duration, start time.Time) {
	begun := start.Add(at)
	ctx, cancel := context.WithDeadline(t.Context(), begun.Add(r.deadline))
	defer cancel()
	l, err := p.AcquireWith(ctx, nil, priority)
	served := err == nil
	if served {
		time.Sleep(time.Until(start.Add(r.after(time.Since(start), hold))))
		err = ctx.Err()
		_ = l.Release()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came[priority]++
	switch {
	case served:
		r.served[priority]++
	case !errors.Is(err, ErrOverloaded):
		r.left[priority]++
	}
	switch {
	case err == nil:
		r.inTime++
		if at > 2*time.Second {
			r.afterward++
		}
		r.took = append(r.took, time.Since(begun))
	case errors.Is(err, ErrOverloaded):
		r.refused[priority]++
	}
}

// goodput is the part of the pool's capacity that was served in time.
func (r *rush) goodput() float64 {
	return float64(r.inTime) / float64(r.lasts) * float64(rushHold) / rushMax
}

func (r *rush) goodputAfterward() float64 {
	return float64(r.afterward) / float64(r.lasts-2*time.Second) * float64(rushHold) / rushMax
}

func (r *rush) p99() time.Duration {
	slices.Sort(r.took)
	return r.took[len(r.took)*99/100]
}

func rushed(t *testing.T, cfg Config[*item]) *Pool[*item] {
	cfg.Max = rushMax
	p, _ := sell(t, cfg)
	for _, l := range mustAll(t, p, rushMax) {
		require.NoError(t, l.Release())
	}
	return p
}

const (
	queueTarget   = 50 * time.Millisecond
	queueDeadline = 250 * time.Millisecond
)

func TestAnOverloadedPoolServesWhatItCanInTime(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{0.8, 1.2, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			p := rushed(t, Config[*item]{QueueTarget: queueTarget})
			r := &rush{load: load, lasts: time.Minute, deadline: queueDeadline, hold: steady}
			r.run(t, p)
			refused := float64(r.refused[0]) / float64(r.came[0])
			t.Logf("load %.1f: %d came, %.2f%% refused, goodput %.3f, after 2 s %.3f, p99 %v", load, r.came[0], 100*refused, r.goodput(), r.goodputAfterward(), r.p99())
			if load < 1 || load >= 2 { // in between, overloads begin and end all the time
				require.LessOrEqual(t, r.p99(), 2*queueTarget+rushHold)
			}
			require.EqualValues(t, r.refused[0], p.Stats().Shed)
			if load < 1 {
				require.LessOrEqual(t, refused, 0.001)
				require.Equal(t, r.came[0], r.inTime+r.refused[0])
				return
			}
			require.GreaterOrEqual(t, r.goodputAfterward(), 0.97)
			require.GreaterOrEqual(t, r.goodput(), 0.97)
		})
	}
}

// The same load without admission: nearly all are served too late.
func TestWithoutAdmissionAnOverloadedPoolServesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := rushed(t, Config[*item]{})
		r := &rush{load: 2, lasts: 10 * time.Second, deadline: queueDeadline, hold: steady}
		r.run(t, p)
		require.Less(t, r.goodputAfterward(), 0.2)
		require.Zero(t, p.Stats().Shed)
	})
}

func TestHoldsOfAllLengthsAreServedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := rushed(t, Config[*item]{QueueTarget: queueTarget})
		r := &rush{load: 2, lasts: time.Minute, deadline: queueDeadline, hold: func(r *rand.Rand) time.Duration {
			return time.Duration(r.ExpFloat64() * float64(rushHold))
		}}
		r.run(t, p)
		require.GreaterOrEqual(t, r.goodputAfterward(), 0.9)
	})
}

func TestPriorityLowIsRefusedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := rushed(t, Config[*item]{QueueTarget: queueTarget})
		r := &rush{load: 1.6, low: 0.5, lasts: time.Minute, deadline: queueDeadline, hold: steady}
		r.run(t, p)
		t.Logf("refused %d of %d normal, %d of %d low; goodput %.3f", r.refused[0], r.came[0], r.refused[1], r.came[1], r.goodput())
		require.LessOrEqual(t, float64(r.refused[0]), 0.001*float64(r.came[0]))
		require.GreaterOrEqual(t, r.goodput(), 0.95)
		s := p.Stats()
		require.EqualValues(t, r.refused[1], s.ShedLow)
		require.EqualValues(t, r.refused[0]+r.refused[1], s.Shed)
	})
}

// court is a pool of one resource, which is lent. The average hold is 20 ms, and while others wait, one acquirer
// is served every 20 ms.
type court struct {
	*Pool[*item]
	t    *testing.T
	line line
	held Lease[*item]
	all  []*queuer
}

// inCourt runs a test in a bubble.
func inCourt(t *testing.T, cfg Config[*item], test func(*testing.T, *court)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := quiet(1)
		base.QueueTarget, base.QueueDry, base.Strategy, base.BeforeAcquire = queueTarget, cfg.QueueDry, cfg.Strategy, cfg.BeforeAcquire
		p, _ := sell(t, base)
		c := &court{Pool: p, t: t, line: line{t: t, p: p}}
		c.held = must(t, p)
		defer c.finish()
		for range 2 * averaged { // two wait when one is served, so that the pace is measured
			c.ask(PriorityHigh, 0)
			after(rushHold)
			c.ask(PriorityHigh, 0)
			c.next()
			after(rushHold)
			c.next()
		}
		c.all = nil
		test(t, c)
	})
}

// next gives the resource back, and finds who has got it.
func (c *court) next() (who *queuer) {
	require.NoError(c.t, c.held.Release())
	synctest.Wait()
	for _, q := range c.all {
		if q.isDone() && q.err == nil && q.lease.Valid() {
			c.held, who = q.lease, q
		}
	}
	return who
}

func (c *court) finish() {
	for c.held.Valid() {
		c.next()
	}
}

func (c *court) ask(priority Priority, within time.Duration) *queuer {
	q := c.line.joinWith(func(ctx context.Context) (Lease[*item], error) {
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		return c.AcquireWith(ctx, len(c.all), priority)
	})
	c.all = append(c.all, q)
	return q
}

// overload makes the pool overloaded: one acquirer waits for longer than QueueTarget and QueueInterval.
func (c *court) overload() *queuer {
	first := c.ask(PriorityNormal, 0)
	after(queueTarget)
	for range 2 {
		after(DefaultQueueInterval)
		c.ask(PriorityHigh, 0).cancel()
		synctest.Wait()
	}
	require.True(c.t, c.Stats().Overloaded)
	return first
}

func TestTheErrorOfOverloadSaysWhenToComeBack(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		c.overload()
		c.ask(PriorityNormal, 0)
		require.False(t, c.ask(PriorityNormal, 0).isDone(), "its wait is predicted to be 60 ms")
		refused := c.ask(PriorityNormal, 0)
		require.ErrorIs(t, refused.err, ErrOverloaded)
		require.NotErrorIs(t, refused.err, context.DeadlineExceeded)
		var err *AcquireError
		require.ErrorAs(t, refused.err, &err)
		require.InDelta(t, 4*rushHold, err.PredictedWait, float64(time.Millisecond))
		require.GreaterOrEqual(t, err.RetryAfter, err.PredictedWait+DefaultQueueInterval/2)
		require.Less(t, err.RetryAfter, err.PredictedWait+DefaultQueueInterval*3/2)
		require.Zero(t, err.Waited)
		require.Contains(t, err.Error(), "pool: acquire: overloaded")
		require.Contains(t, err.Error(), "retry after")
		require.Equal(t, err.PredictedWait, c.Stats().PredictedWait)
	})
}

func TestTheLastThatWaitsIsServedHoweverLateItIs(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		first := c.overload()
		second := c.ask(PriorityNormal, 0)
		third := c.ask(PriorityLow, 0)
		require.ErrorIs(t, third.err, ErrOverloaded)
		after(time.Minute)
		require.Same(t, second, c.next())
		var err *AcquireError
		require.ErrorAs(t, first.err, &err)
		require.ErrorIs(t, err, ErrOverloaded)
		require.Greater(t, err.Waited, time.Minute)
		require.EqualValues(t, 2, c.Stats().Shed)
		require.EqualValues(t, 1, c.Stats().ShedLow)
	})
}

// The resource would be idle if the first were refused, because the one behind leaves.
func TestAWaiterWhoseDeadlineHasPassedIsNotTheLast(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		first := c.overload()
		second := c.line.joinWith(func(context.Context) (Lease[*item], error) {
			return c.AcquireWith(timelessContext{time.Now().Add(rushHold * 3)}, nil, PriorityNormal)
		})
		require.False(t, second.isDone())
		after(time.Second)
		require.Same(t, first, c.next())
		after(lateGrace)
		require.False(t, second.isDone(), "its context has not ended: it goes on")
		c.all = append(c.all, second)
		require.Same(t, second, c.next())
	})
}

// timelessContext has a deadline, with which it does not end.
type timelessContext struct{ until time.Time }

func (l timelessContext) Deadline() (time.Time, bool) { return l.until, true }
func (l timelessContext) Done() <-chan struct{}       { return nil }
func (l timelessContext) Err() error                  { return nil }
func (l timelessContext) Value(any) any               { return nil }

func TestWhoHoldsAResourceIsNeverRefused(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		c.overload()
		c.ask(PriorityNormal, 0)
		var holders []*queuer
		for range 20 {
			holders = append(holders, c.ask(PriorityHigh, 0))
		}
		require.ErrorIs(t, c.ask(PriorityNormal, 0).err, ErrOverloaded)
		after(time.Minute)
		for _, h := range holders {
			require.Same(t, h, c.next(), "the two before are refused, and each holder has its turn")
		}
	})
}

func TestAnAcquirerWithoutTheTimeForOneHoldIsRefusedAtOnce(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		begun := time.Now()
		require.ErrorIs(t, c.ask(PriorityNormal, 2*rushHold-time.Millisecond).err, ErrOverloaded)
		require.Zero(t, time.Since(begun))
		require.False(t, c.Stats().Overloaded)
		enough := c.ask(PriorityNormal, 2*rushHold+time.Millisecond)
		require.False(t, enough.isDone())
		after(rushHold)
		require.Same(t, enough, c.next())
		second, third := c.ask(PriorityNormal, 3*rushHold), c.ask(PriorityNormal, 0)
		after(3*rushHold - rushHold/2)
		require.Same(t, third, c.next(), "second has half a hold left")
		require.ErrorIs(t, second.err, ErrOverloaded)
	})
}

func TestADryRunCountsEachAcquirerOnce(t *testing.T) {
	inCourt(t, Config[*item]{QueueDry: true}, func(t *testing.T, c *court) {
		first := c.overload()
		low := c.ask(PriorityLow, 0)
		hopeless := c.ask(PriorityNormal, rushHold)
		require.EqualValues(t, 2, c.Stats().WouldRefuse)
		after(rushHold)
		require.ErrorIs(t, hopeless.err, context.DeadlineExceeded)
		after(time.Second)
		require.Same(t, first, c.next())
		require.EqualValues(t, 3, c.Stats().WouldRefuse)
		require.Same(t, low, c.next())
		require.EqualValues(t, 3, c.Stats().WouldRefuse)
		require.Zero(t, c.Stats().Shed)
	})
}

func TestWhoWasTakenAlongIsNotRefusedLater(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		low := c.ask(PriorityLow, 0)
		require.False(t, low.isDone())
		followers := c.held.TakeAlong(upTo(1), anybody)
		require.Len(t, followers, 1)
		behind := c.ask(PriorityNormal, 0)
		after(time.Second)
		followers[0].Return()
		require.Same(t, low, c.next())
		require.Same(t, behind, c.next())
		served := c.ask(PriorityLow, 0)
		require.True(t, c.held.TakeAlong(upTo(1), anybody)[0].Served(nil))
		synctest.Wait()
		require.ErrorIs(t, served.err, ErrServed)
		require.Zero(t, c.Stats().Shed)
	})
}

// A pipeline serves many at once: the pace counts them all.
func TestFollowersCountAsServed(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		for range averaged {
			for range 4 {
				c.ask(PriorityHigh, 0)
			}
			last := c.ask(PriorityHigh, 0)
			after(rushHold)
			for _, f := range c.held.TakeAlong(upTo(4), anybody) {
				f.Served(nil)
			}
			require.Same(t, last, c.next())
		}
		for range 10 {
			c.ask(PriorityHigh, 0)
		}
		require.Less(t, c.Stats().PredictedWait, 11*rushHold/3)
	})
}

// Each of them needs a part of the time. Who has time for that is not refused.
func TestAHoldIsSharedByThoseInThePipeline(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		for range 4 * averaged {
			for range 3 {
				c.ask(PriorityHigh, 0)
			}
			last := c.ask(PriorityHigh, 0)
			followers := c.held.TakeAlong(upTo(3), anybody)
			after(rushHold)
			for _, f := range followers {
				f.Served(nil)
			}
			require.Same(t, last, c.next())
		}
		require.InDelta(t, rushHold/4, c.admission.hold.mean, float64(rushHold/20))
	})
}

// Who comes back from a pipeline is served once.
func TestAFollowerCountsAsServedWhenItIs(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		pace := c.admission.pace
		for range averaged {
			c.ask(PriorityHigh, 0)
			last := c.ask(PriorityHigh, 0)
			for range 3 {
				for _, f := range c.held.TakeAlong(upTo(2), anybody) {
					f.Return()
				}
			}
			after(rushHold)
			c.next()
			after(rushHold)
			require.Same(t, last, c.next())
		}
		require.InDelta(t, pace.mean, c.admission.pace.mean, float64(rushHold/20))
	})
}

func TestWhoseResourceWasRefusedByBeforeAcquireIsNotRefusedItself(t *testing.T) {
	var fail bool
	inCourt(t, Config[*item]{BeforeAcquire: func(context.Context, *item) error {
		if fail {
			fail = false
			return errBroken
		}
		return nil
	}}, func(t *testing.T, c *court) {
		first := c.ask(PriorityLow, 0)
		behind := c.ask(PriorityHigh, 0)
		fail = true
		require.Same(t, first, c.next(), "with a new resource")
		require.Same(t, behind, c.next())
		require.Zero(t, c.Stats().Shed)
	})
}

func TestAnOverloadEndsWithItsQueue(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		require.NotNil(t, c.overload())
		c.next()
		after(DefaultQueueInterval)
		require.True(t, c.Stats().Overloaded, "nobody has come since")
		c.ask(PriorityNormal, 0)
		require.False(t, c.Stats().Overloaded, "the queue was empty")
	})
}

func TestAdmitAllRefusesNobodyAnyMore(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		first := c.overload()
		second := c.ask(PriorityNormal, 0)
		c.AdmitAll()
		low := c.ask(PriorityLow, 0)
		after(time.Second)
		for _, q := range []*queuer{first, second, low} {
			require.Same(t, q, c.next())
		}
		require.Zero(t, c.Stats().Shed)
	})
}

// While resources can still be created, nobody waits because of overload.
func TestNobodyIsRefusedWhileThePoolGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{create: func(context.Context) error { time.Sleep(time.Minute); return nil }}
		cfg := quiet(2)
		cfg.QueueTarget = queueTarget
		p, _ := s.sell(t, cfg)
		li := &line{t: t, p: p}
		var all []*queuer
		for range 2 {
			all = append(all, li.joinWith(func(ctx context.Context) (Lease[*item], error) { return p.AcquireWith(ctx, nil, PriorityLow) }))
			after(time.Second)
		}
		after(time.Minute)
		for _, q := range all {
			require.NoError(t, q.err)
			require.NoError(t, q.lease.Release())
		}
	})
}

func TestAQueueTargetIsNotNegative(t *testing.T) {
	t.Parallel()
	cfg := quiet(1)
	cfg.Create = func(context.Context) (*item, error) { return nil, nil }
	cfg.QueueTarget = -1
	_, err := New(cfg)
	require.ErrorContains(t, err, "QueueTarget is -1ns")
}

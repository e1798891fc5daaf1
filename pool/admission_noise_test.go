package pool

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// stall is a time in which nothing runs: the machine does something else.
type stall struct{ from, to time.Duration }

// after is the time d after at, if nothing runs during stalls.
func (r *rush) after(at, d time.Duration) time.Duration {
	for _, s := range r.stalls {
		switch {
		case s.to <= at:
		case s.from > at+d:
			return at + d
		default:
			at, d = s.to, d-max(0, s.from-at)
		}
	}
	return at + d
}

// noisy is a load on a machine that does other things, too. It stands still once in a second, for 34 ms on average, and one
// statement in 20 takes longer than the others. Half of the load is of PriorityLow; the other half takes nine tenths of what can
// be served.
func noisy(seed uint64) *rush {
	random := rand.New(rand.NewPCG(seed, 35))
	r := &rush{seed: seed, load: 1.6, low: 0.5, lasts: time.Minute, deadline: queueDeadline, hold: func(random *rand.Rand) time.Duration {
		hold := rushHold * 19 / 20
		switch n := random.IntN(1000); {
		case n < 4:
			hold += time.Duration(100+random.IntN(100)) * time.Millisecond
		case n < 50:
			hold += time.Duration(random.ExpFloat64() * float64(15*time.Millisecond))
		}
		return hold
	}}
	for at := time.Duration(0); at < r.lasts; {
		at += time.Duration(random.ExpFloat64() * float64(time.Second))
		end := at + min(100*time.Millisecond, time.Duration(random.ExpFloat64()*float64(36*time.Millisecond)))
		r.stalls = append(r.stalls, stall{at, end})
		at = end
	}
	return r
}

// After each pause of the machine the queue is long for more than QueueInterval, and it is the others who wait in it.
// Without admission.spared, 0.9 % of them are refused here.
func TestOnANoisyMachinePriorityLowIsRefusedFirst(t *testing.T) {
	t.Parallel()
	var came, refused, served, left [2]int
	for seed := range uint64(randomtest.Rounds(10, 100)) {
		synctest.Test(t, func(t *testing.T) {
			p := rushed(t, Config[*item]{QueueTarget: queueTarget})
			r := noisy(seed)
			r.run(t, p)
			for i := range came {
				came[i] += r.came[i]
				refused[i] += r.refused[i]
				served[i] += r.served[i]
				left[i] += r.left[i]
			}
			require.GreaterOrEqual(t, r.goodput(), 0.9)
		})
	}
	t.Logf("of %d others %d were refused, of %d low %d", came[0], refused[0], came[1], refused[1])
	require.LessOrEqual(t, float64(refused[0]), 0.001*float64(came[0]))
	for i := range came {
		require.Equal(t, came[i], served[i]+refused[i]+left[i], "each has one end")
	}
}

// Those of PriorityLow who are refused give their time to the others, and the others are refused the later.
func TestAnOverloadBeginsLaterWhilePriorityLowIsRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		low   int
		later time.Duration
	}{
		{"none", 0, 0},
		{"ten", 10, 10 * rushHold},
		{"no end", 1000, mostSpared * DefaultQueueInterval},
	} {
		t.Run(test.name, func(t *testing.T) {
			inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
				c.ask(PriorityNormal, 0)
				begun := time.Now()
				for range test.low {
					require.ErrorIs(t, c.ask(PriorityLow, 0).err, ErrOverloaded)
				}
				for !c.Stats().Overloaded {
					after(time.Millisecond)
					c.ask(PriorityHigh, 0).cancel()
					synctest.Wait()
				}
				took := time.Since(begun)
				require.InDelta(t, DefaultQueueInterval+test.later, took, float64(15*time.Millisecond))
				for c.Stats().Overloaded { // it ends as always
					c.next()
					begun = time.Now()
					after(DefaultQueueInterval)
					c.ask(PriorityHigh, 0)
					c.next()
				}
				require.Less(t, time.Since(begun), DefaultQueueInterval+2*rushHold)
			})
		})
	}
}

// Between the time at which it would have been overloaded and that at which it is, nobody waits for more than four targets.
func TestBeforeALateOverloadTheOthersWaitForFourTargets(t *testing.T) {
	inCourt(t, Config[*item]{}, func(t *testing.T, c *court) {
		c.ask(PriorityNormal, 0)
		for range 30 {
			require.ErrorIs(t, c.ask(PriorityLow, 0).err, ErrOverloaded)
		}
		after(DefaultQueueInterval + rushHold)
		for c.Stats().PredictedWait <= 4*queueTarget {
			require.False(t, c.ask(PriorityNormal, 0).isDone())
		}
		require.False(t, c.Stats().Overloaded)
		require.ErrorIs(t, c.ask(PriorityNormal, 0).err, ErrOverloaded)
		after(30 * rushHold)
		c.ask(PriorityHigh, 0)
		require.True(t, c.Stats().Overloaded)
	})
}

func TestOneLongPauseSaysLittleAboutTheNextHold(t *testing.T) {
	t.Parallel()
	var a average
	for range 2 * averaged {
		a.add(int64(rushHold))
	}
	a.add(int64(time.Hour))
	require.Equal(t, rushHold+4*rushHold/averaged, time.Duration(a.mean))
	for range 4 * averaged {
		a.add(int64(time.Second))
	}
	require.Greater(t, time.Duration(a.mean), 900*time.Millisecond, "holds that stay long are believed")
}

package pool

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// bench compares a pool with a model of its admission, step by step. The model knows no locks, and works out the averages and the overload anew from what has happened.
type bench struct {
	*Pool[*item]
	t      *testing.T
	random *rand.Rand
	dry    bool

	pleas   []*plea
	queue   []*plea // in the order of arrival
	lent    []*plea
	follows []*plea
	idle    int

	holds, paces []int64 // of the past
	served       time.Time
	delays       []delay // seen, since the overload began or ended last
	overloaded   bool
	strained     bool
	shed, would  uint64
}

type delay struct {
	at     time.Time
	above  bool
	spared time.Duration // not a delay: an acquirer of PriorityLow was refused
}

// plea is one acquirer.
type plea struct {
	priority        Priority
	came, lent, end time.Time
	judged          bool
	verdict         error // of the model; nil: a resource or none yet
	over            bool  // in the model: the acquire has returned

	cancel   context.CancelFunc
	follower Follower[*item]
	leader   *plea
	served   int64 // of its followers
	lease    Lease[*item]
	err      error
	done     atomic.Bool
}

func averageOf(values []int64) time.Duration {
	mean := int64(0)
	for i, v := range values {
		d := v - mean
		if i >= averaged {
			d = min(d, max(4*mean, int64(2*bubble.Tick)))
		}
		mean += d / int64(min(i+1, averaged))
	}
	return time.Duration(mean)
}

func (b *bench) see(above bool) {
	b.delays = append(b.delays, delay{at: time.Now(), above: above})
	last := b.delays[0].at // the last time on the present side, or the change to it
	wait := time.Duration(0)
	for i, d := range b.delays {
		switch {
		case d.spared > 0:
			wait += d.spared
		case i == 0 || d.above == b.overloaded:
			last, wait = d.at, 0
		}
	}
	if !above {
		wait = 0
	}
	b.strained = above && !b.overloaded && time.Since(last) >= DefaultQueueInterval
	if above != b.overloaded && time.Since(last) >= DefaultQueueInterval+min(wait, 3*DefaultQueueInterval) {
		b.overloaded, b.delays = above, []delay{{at: time.Now(), above: above}}
	}
}

func (b *bench) limit(p *plea) time.Duration {
	switch {
	case p.priority == PriorityLow:
		return queueTarget / 2
	case b.overloaded:
		return queueTarget * 3 / 2
	case b.strained:
		return queueTarget * 4
	}
	return time.Hour
}

// refuse reports whether p leaves.
func (b *bench) refuse(p *plea) bool {
	p.judged = true
	if b.dry {
		b.would++
		return false
	}
	b.shed++
	if p.priority == PriorityLow && averageOf(b.paces) > 0 {
		b.delays = append(b.delays, delay{spared: averageOf(b.paces)})
	}
	p.over, p.verdict = true, ErrOverloaded
	return true
}

func (b *bench) take(p *plea) {
	b.queue = slices.DeleteFunc(b.queue, func(q *plea) bool { return p == q })
}

func (b *bench) lend(p *plea) {
	p.over, p.lent = true, time.Now()
	b.lent = append(b.lent, p)
}

func (b *bench) serve() {
	if !b.served.IsZero() {
		b.paces = append(b.paces, int64(time.Since(b.served)))
	}
	b.served = time.Now()
}

func (b *bench) come(p *plea) {
	if b.idle > 0 {
		b.idle--
		b.lend(p)
		return
	}
	if len(b.queue) == 0 {
		b.served = time.Time{}
		b.see(false)
	} else if time.Since(b.queue[0].came) > queueTarget {
		b.see(true)
	}
	if p.judged = p.priority == PriorityHigh; !p.judged {
		wait := time.Duration(len(b.queue)+1) * averageOf(b.paces)
		late := wait > b.limit(p)
		hopeless := !p.end.IsZero() && wait+averageOf(b.holds) > 0 && wait+averageOf(b.holds) > time.Until(p.end)
		if (late || hopeless) && b.refuse(p) {
			return
		}
	}
	b.queue = append(b.queue, p)
}

func (b *bench) giveBack(p *plea) {
	b.lent = slices.DeleteFunc(b.lent, func(q *plea) bool { return p == q })
	b.holds = append(b.holds, int64(time.Since(p.lent))/(1+p.served))
	if len(b.queue) == 0 {
		b.idle++
		return
	}
	w := b.queue[0]
	for ; !w.judged; w = b.queue[0] {
		d := time.Since(w.came)
		b.see(d > queueTarget)
		if d <= b.limit(w) && (w.end.IsZero() || time.Until(w.end) >= averageOf(b.holds)) || len(b.queue) == 1 || !b.refuse(w) {
			break
		}
		b.take(w)
	}
	b.serve()
	b.take(w)
	b.lend(w)
}

// pass lets whole ticks go by, so that the coarse time is exact, and those leave whose contexts end.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	for _, p := range b.pleas {
		if !p.over && !p.end.IsZero() && !time.Now().Before(p.end) {
			b.quit(p, context.DeadlineExceeded)
		}
	}
}

func (b *bench) quit(p *plea, err error) {
	b.take(p)
	b.follows = slices.DeleteFunc(b.follows, func(q *plea) bool { return p == q })
	p.over, p.verdict = true, err
}

func (b *bench) ask() {
	p := &plea{priority: Priority(b.random.IntN(3)), came: time.Now()}
	var ctx context.Context
	if ctx, p.cancel = context.WithCancel(context.Background()); b.random.IntN(2) == 0 {
		p.end = time.Now().Add(time.Duration(b.random.IntN(300)+1) * time.Millisecond)
		ctx, p.cancel = context.WithDeadline(ctx, p.end)
	}
	b.pleas = append(b.pleas, p)
	b.come(p)
	go func() {
		p.lease, p.err = b.AcquireWith(ctx, p, p.priority)
		p.done.Store(true)
	}()
}

func (b *bench) step() {
	switch pick := b.random.IntN(20); {
	case pick < 8:
		b.ask()
	case pick < 13 && len(b.lent) > 0:
		p := b.lent[b.random.IntN(len(b.lent))]
		b.giveBack(p)
		require.NoError(b.t, p.lease.Release())
	case pick < 14 && len(b.queue) > 0:
		p := b.queue[b.random.IntN(len(b.queue))]
		b.quit(p, context.Canceled)
		p.cancel()
	case pick < 15 && len(b.lent) > 0:
		b.takeAlong(b.lent[b.random.IntN(len(b.lent))])
	default:
		b.pass(time.Duration(b.random.IntN(4)) * bubble.Tick)
	}
}

func (b *bench) takeAlong(leader *plea) {
	for _, f := range leader.lease.TakeAlong(upTo(1+b.random.IntN(3)), anybody) {
		p := b.queue[0]
		require.Same(b.t, p, f.Who(), "the first is taken first")
		b.take(p)
		p.judged, p.follower, p.leader = true, f, leader
		b.follows = append(b.follows, p)
	}
	// The lease must outlast its followers here: its end returns them, which follow_random_test.go tests.
	b.pass(time.Duration(b.random.IntN(7)) * bubble.Tick)
	for _, p := range slices.Clone(b.follows) {
		b.endFollowing(p)
	}
}

func (b *bench) endFollowing(p *plea) {
	b.follows = slices.DeleteFunc(b.follows, func(q *plea) bool { return p == q })
	if b.random.IntN(2) == 0 {
		b.serve()
		p.leader.served++
		p.over, p.verdict = true, ErrServed
		require.True(b.t, p.follower.Served(nil))
		return
	}
	b.queue = append(b.queue, p)
	slices.SortStableFunc(b.queue, func(x, y *plea) int { return slices.Index(b.pleas, x) - slices.Index(b.pleas, y) })
	p.follower.Return()
}

func (b *bench) compare() {
	synctest.Wait()
	for i, p := range b.pleas {
		require.Equal(b.t, p.over, p.done.Load(), "number %d: %v", i, p.err)
		if p.verdict != nil || p.err != nil {
			require.ErrorIs(b.t, p.err, p.verdict, "number %d", i)
		}
	}
	b.mu.Lock()
	require.NoError(b.t, b.inconsistencyLocked())
	b.mu.Unlock()
	s := b.Stats()
	require.Equal(b.t, []uint64{b.shed, b.would}, []uint64{s.Shed, s.WouldRefuse})
	require.Equal(b.t, []int{len(b.queue), len(b.follows), len(b.lent), b.idle}, []int{s.Waiting, s.Following, s.Lent, s.Idle})
	if b.idle == 0 {
		require.Equal(b.t, b.overloaded, s.Overloaded)
		require.Equal(b.t, time.Duration(len(b.queue)+1)*averageOf(b.paces), s.PredictedWait)
	}
}

func TestAdmissionAgainstAModel(t *testing.T) {
	t.Parallel()
	shed, would := uint64(0), uint64(0)
	seeds := uint64(40)
	if os.Getenv("POOLDRIVER_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			cfg := quiet(2)
			cfg.QueueTarget, cfg.QueueDry = queueTarget, seed%4 == 0
			p, _ := sell(t, cfg)
			for _, l := range mustAll(t, p, 2) {
				require.NoError(t, l.Release())
			}
			// The time of the model begins with an average: that of the two holds before.
			b := &bench{Pool: p, t: t, random: rand.New(rand.NewPCG(seed, 43)), dry: cfg.QueueDry, idle: 2, holds: []int64{0, 0}}
			for range 500 {
				b.step()
				b.compare()
			}
			for len(b.lent) > 0 {
				p := b.lent[0]
				b.giveBack(p)
				require.NoError(t, p.lease.Release())
				b.compare()
			}
			for _, p := range b.pleas {
				p.cancel()
			}
			shed, would = shed+b.shed, would+b.would
		})
	}
	require.NotZero(t, shed, "the model was not tried")
	require.NotZero(t, would)
	t.Logf("%d refused, %d would be", shed, would)
}

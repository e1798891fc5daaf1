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

// caravan is a pool of one resource with a leader that has it, and n acquirers that wait. Number i acquires
// as i.
type caravan struct {
	*Pool[*item]
	shop *shop
	lead Lease[*item]
	line line
	all  []*queuer
}

func crowded(t *testing.T, cfg Config[*item], n int) *caravan {
	s := &shop{}
	p, _ := s.sell(t, cfg)
	c := &caravan{Pool: p, shop: s, lead: must(t, p), line: line{t: t, p: p}}
	for range n {
		c.join()
	}
	return c
}

func (c *caravan) join() *queuer {
	who := len(c.all)
	q := c.line.joinWith(func(ctx context.Context) (Lease[*item], error) { return c.AcquireAs(ctx, who) })
	c.all = append(c.all, q)
	return q
}

// lendAll lets those who wait have the resource, one after the other, and returns who they are.
func (c *caravan) lendAll(t *testing.T) (order []int) {
	seen := map[*queuer]bool{}
	for {
		before := len(order)
		for i, q := range c.all {
			if q.isDone() && q.err == nil && !seen[q] {
				seen[q] = true
				order = append(order, i)
				require.NoError(t, q.lease.Release())
				synctest.Wait()
			}
		}
		if len(order) == before {
			return order
		}
	}
}

func anybody(any) bool { return true }

func upTo(n int) func(waiting, resources int) int { return func(int, int) int { return n } }

func whoAre(followers []Follower[*item]) (all []any) {
	for _, f := range followers {
		all = append(all, f.Who())
	}
	return all
}

// consistent fails if the pool is not, or holds another number of followers.
func (c *caravan) consistent(t *testing.T, following int) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(t, c.inconsistencyLocked())
	require.Equal(t, following, c.following.n)
}

func TestTakeAlongTakesTheFirstThatMayBeTaken(t *testing.T) {
	for _, c := range []struct {
		name          string
		waiting, most int
		may           func(who any) bool
		want          []any
	}{
		{"nobody waits", 0, 4, anybody, nil},
		{"none is wanted", 3, 0, anybody, nil},
		{"fewer than none are wanted", 3, -1, anybody, nil},
		{"the first", 4, 1, anybody, []any{0}},
		{"the first two", 4, 2, anybody, []any{0, 1}},
		{"all", 3, 3, anybody, []any{0, 1, 2}},
		{"more than there are", 3, 16, anybody, []any{0, 1, 2}},
		{"nobody may", 3, 3, func(any) bool { return false }, nil},
		{"one between", 3, 3, func(who any) bool { return who == 1 }, []any{1}},
		{"the last", 3, 1, func(who any) bool { return who == 2 }, []any{2}},
		{"every other one", 6, 2, func(who any) bool { return who.(int)%2 == 1 }, []any{1, 3}},
		{"one in reach", reach + 1, 1, func(who any) bool { return who == reach }, []any{reach}},
		{"one beyond reach", reach + 2, 1, func(who any) bool { return who == reach+1 }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := crowded(t, quiet(1), c.waiting)
				followers := w.lead.TakeAlong(upTo(c.most), c.may)
				require.Equal(t, c.want, whoAre(followers))
				w.consistent(t, len(c.want))
				s := w.Stats()
				require.Equal(t, len(c.want), s.Following)
				require.Equal(t, c.waiting-len(c.want), s.Waiting)
				require.EqualValues(t, min(1, len(c.want)), s.Pipelines)
				var order []int // those who were not taken keep their places
				for i := range c.waiting {
					order = append(order, i)
				}
				for _, f := range followers {
					require.False(t, f.Left())
					require.True(t, f.Served(nil))
					require.True(t, f.Left())
				}
				w.consistent(t, 0)
				for i := len(followers) - 1; i >= 0; i-- {
					who := followers[i].Who().(int)
					require.Equal(t, ErrServed, w.all[who].err)
					require.True(t, w.all[who].lease.IsZero())
					at := who
					for order[at] != who {
						at--
					}
					order = append(order[:at], order[at+1:]...)
				}
				require.NoError(t, w.lead.Release())
				synctest.Wait()
				require.ElementsMatch(t, order, append([]int{}, w.lendAll(t)...))
				last := 0
				for _, who := range order {
					require.Greater(t, w.all[who].at, last, "those who were not taken are served in their order")
					last = w.all[who].at
				}
				require.EqualValues(t, len(c.want), w.Stats().Pipelined)
				require.Equal(t, 1, w.shop.madeSoFar())
			})
		})
	}
}

// Left reports whether the acquirer follows no more.
func (f Follower[T]) Left() bool {
	f.pool.lock()
	defer f.pool.mu.Unlock()
	return !f.followsLocked()
}

// What a follower's acquire does next, in each way in which the following can end.
func TestHowAFollowerEnds(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		name string
		end  func(c *caravan, f Follower[*item])
		err  error // nil: the acquirer waits on, and gets the resource next
		left bool
	}{
		{"served", func(_ *caravan, f Follower[*item]) { f.Served(nil) }, ErrServed, true},
		{"returned", func(_ *caravan, f Follower[*item]) { f.Return() }, nil, true},
		{"its context ends", func(c *caravan, _ Follower[*item]) { c.all[0].cancel() }, context.Canceled, true},
		{"AcquireTimeout", func(*caravan, Follower[*item]) { time.Sleep(timeout) }, ErrTimeout, true},
		{"not yet AcquireTimeout", func(_ *caravan, f Follower[*item]) { time.Sleep(timeout - 1); f.Served(nil) }, ErrServed, true},
		{"AcquireTimeout while its work is done", func(_ *caravan, f Follower[*item]) { f.Works(); time.Sleep(timeout); f.Served(nil) }, ErrServed, true},
		{"AcquireTimeout after its work", func(_ *caravan, f Follower[*item]) { f.Works(); time.Sleep(timeout); f.Return() }, ErrTimeout, true},
		{"its context ends while its work is done", func(c *caravan, f Follower[*item]) { f.Works(); c.all[0].cancel() }, context.Canceled, true},
		{"served and then left", func(c *caravan, f Follower[*item]) { f.Served(nil); c.all[0].cancel() }, ErrServed, true},
		{"left and then served", func(c *caravan, f Follower[*item]) { c.all[0].cancel(); synctest.Wait(); f.Served(nil) }, context.Canceled, true},
		{"returned and then left", func(c *caravan, f Follower[*item]) { f.Return(); c.all[0].cancel() }, context.Canceled, true},
		{"returned and then late", func(_ *caravan, f Follower[*item]) { time.Sleep(timeout / 2); f.Return(); time.Sleep(timeout / 2) }, ErrTimeout, true},
		{"served twice", func(_ *caravan, f Follower[*item]) { f.Served(nil); f.Served(nil) }, ErrServed, true},
		{"served and returned", func(_ *caravan, f Follower[*item]) { f.Served(nil); f.Return() }, ErrServed, true},
		{"returned and served", func(_ *caravan, f Follower[*item]) { f.Return(); f.Served(nil) }, nil, true},
		{"returned twice", func(_ *caravan, f Follower[*item]) { f.Return(); f.Return() }, nil, true},
		{"the leader forgets it", func(c *caravan, _ Follower[*item]) { _ = c.lead.Release() }, nil, true},
		{"the leader forgets it and discards", func(c *caravan, _ Follower[*item]) { _ = c.lead.Discard() }, nil, true},
		{"served too late", func(c *caravan, f Follower[*item]) { _ = c.lead.Release(); f.Served(nil) }, nil, true},
		{"served after Close", func(c *caravan, f Follower[*item]) { c.Close(); f.Served(nil) }, ErrServed, true},
		{"returned after Close", func(c *caravan, f Follower[*item]) { c.Close(); f.Return() }, ErrClosed, true},
		{"forgotten after Close", func(c *caravan, _ Follower[*item]) { c.Close(); _ = c.lead.Release() }, ErrClosed, true},
		{"left after Close", func(c *caravan, _ Follower[*item]) { c.Close(); c.all[0].cancel() }, context.Canceled, true},
		{"AcquireTimeout after Close", func(c *caravan, _ Follower[*item]) { c.Close(); time.Sleep(timeout) }, ErrTimeout, true},
		{"served while Inactive", func(c *caravan, f Follower[*item]) { c.Deactivate(); f.Served(nil) }, ErrServed, true},
		{"returned while Inactive", func(c *caravan, f Follower[*item]) { c.Deactivate(); f.Return() }, ErrUnavailable, true},
		{"returned while Recovering", func(c *caravan, f Follower[*item]) { c.Recover(); f.Return() }, nil, true},
		{"flushed and returned", func(c *caravan, f Follower[*item]) { c.Flush(); f.Return() }, nil, true},
		{"still following", func(*caravan, Follower[*item]) {}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				cfg.AcquireTimeout = timeout
				w := crowded(t, cfg, 1)
				f := w.lead.TakeAlong(upTo(1), anybody)[0]
				require.Equal(t, 0, f.Who())
				c.end(w, f)
				synctest.Wait()
				require.Equal(t, c.left, f.Left())
				if w.lead.Valid() {
					require.Equal(t, c.err != nil, w.all[0].isDone())
					require.NoError(t, w.lead.Release())
				}
				w.consistent(t, 0)
				require.True(t, w.all[0].isDone(), "the end of the lease returns it")
				require.True(t, f.Left())
				require.ErrorIs(t, w.all[0].err, c.err)
				s := w.Stats()
				require.Equal(t, errors.Is(c.err, ErrServed), s.Pipelined == 1)
				require.Equal(t, errors.Is(c.err, ErrTimeout), s.Timeouts == 1)
				require.Equal(t, errors.Is(c.err, context.Canceled), s.Cancelled == 1)
				require.Equal(t, errors.Is(c.err, ErrUnavailable), s.Unavailable == 1)
				if c.err == nil {
					require.NoError(t, w.all[0].lease.Release())
				}
				require.EqualValues(t, 2, w.Stats().Waits, "the leader waited for Create")
			})
		})
	}
}

// Neither does a follower come back behind those who came after it, nor does it get a resource twice.
func TestAFollowerReturnsToItsOwnPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(f []Follower[*item])
		want []int
	}{
		{"in their order", func(f []Follower[*item]) { f[0].Return(); f[1].Return(); f[2].Return() }, []int{0, 1, 2, 3, 4}},
		{"against their order", func(f []Follower[*item]) { f[2].Return(); f[1].Return(); f[0].Return() }, []int{0, 1, 2, 3, 4}},
		{"one is served", func(f []Follower[*item]) { f[2].Return(); f[0].Return(); f[1].Served(nil) }, []int{0, 2, 3, 4}},
		{"by the end of the lease", func([]Follower[*item]) {}, []int{0, 1, 2, 3, 4}},
		{"some by the end of the lease", func(f []Follower[*item]) { f[1].Return() }, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := crowded(t, quiet(1), 4)
				followers := w.lead.TakeAlong(upTo(3), anybody)
				w.join()
				c.do(followers)
				require.NoError(t, w.lead.Release())
				synctest.Wait()
				require.Equal(t, c.want, w.lendAll(t))
				w.consistent(t, 0)
			})
		})
	}
}

// The queue was empty without the follower, so another resource may be idle when it comes back.
func TestAFollowerThatReturnsGetsAnIdleResourceAtOnce(t *testing.T) {
	for name, comeBack := range map[string]func(w *caravan, f Follower[*item]){
		"returned":                 func(_ *caravan, f Follower[*item]) { f.Return() },
		"forgotten":                func(w *caravan, _ Follower[*item]) { _ = w.lead.Discard() },
		"forgotten, with cleaning": func(w *caravan, _ Follower[*item]) { _ = w.lead.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(2)
				cleaning := make(gate)
				cfg.BeforeRelease = func(context.Context, *item) error { return nil }
				w := crowded(t, cfg, 0)
				other := must(t, w.Pool)
				w.join()
				f := w.lead.TakeAlong(upTo(1), anybody)[0]
				require.NoError(t, other.Release())
				require.Equal(t, 1, w.Stats().Idle)
				w.cfg.BeforeRelease = func(ctx context.Context, _ *item) error { return cleaning.pass(ctx) }
				go comeBack(w, f)
				synctest.Wait()
				require.True(t, w.all[0].isDone())
				require.Equal(t, other.Value(), w.all[0].lease.Value())
				close(cleaning)
				synctest.Wait()
				require.NoError(t, w.all[0].lease.Release())
				if w.lead.Valid() {
					require.NoError(t, w.lead.Release())
				}
			})
		})
	}
}

// One who comes later may have a resource that is idle, while the others follow; MaxWaiters does not count
// them, and they do not starve.
func TestFollowersAreNotInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.MaxWaiters = 2
		starving := 0
		cfg.Starving = func(int) { starving++ }
		w := crowded(t, cfg, 0)
		other := must(t, w.Pool)
		first, second := w.join(), w.join()
		_, err := w.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTooManyWaiters)
		followers := w.lead.TakeAlong(upTo(2), anybody)
		require.Len(t, followers, 2)
		third, fourth := w.join(), w.join()
		_, err = w.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTooManyWaiters)
		require.Equal(t, 2, err.(*AcquireError).Waiting)
		require.NoError(t, other.Release())
		synctest.Wait()
		require.NoError(t, third.err)
		require.NoError(t, third.lease.Release())
		synctest.Wait()
		require.NoError(t, fourth.lease.Release())
		l, err := w.AcquireNow(t.Context())
		require.NoError(t, err)
		after(time.Minute)
		require.Zero(t, starving)
		followers[1].Return()
		synctest.Wait()
		require.Equal(t, 1, starving, "its earlier wait counts")
		followers[0].Return()
		require.NoError(t, l.Release())
		synctest.Wait()
		require.True(t, first.isDone())
		require.False(t, second.isDone())
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.NoError(t, first.lease.Release())
		require.NoError(t, second.lease.Release())
	})
}

// A follower's wait ends when it is taken along, if it is served; otherwise when it ends.
func TestTheWaitOfAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, quiet(1), 3)
		time.Sleep(time.Second)
		followers := w.lead.TakeAlong(upTo(3), anybody)
		require.Len(t, followers, 3)
		time.Sleep(time.Second)
		followers[0].Served(nil)
		synctest.Wait()
		require.Equal(t, time.Second, w.Stats().WaitTotal)
		w.all[1].cancel()
		synctest.Wait()
		require.Equal(t, 3*time.Second, w.Stats().WaitTotal)
		var e *AcquireError
		require.ErrorAs(t, w.all[1].err, &e)
		require.Equal(t, 2*time.Second, e.Waited)
		followers[2].Return()
		time.Sleep(time.Second)
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.Equal(t, 3*time.Second, w.all[2].lease.Waited())
		require.NoError(t, w.all[2].lease.Release())
		require.Equal(t, 6*time.Second, w.Stats().WaitTotal)
		require.Equal(t, 3*time.Second, w.Stats().WaitMax)
	})
}

func TestWaitingTellsWhoFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Minute
		w := crowded(t, cfg, 4)
		begun := time.Now()
		w.lead.TakeAlong(upTo(2), func(who any) bool { return who.(int)%2 == 1 })
		time.Sleep(time.Second)
		var got []Waiting
		for i, x := range w.Waiting() {
			require.WithinDuration(t, begun, x.Since, time.Microsecond)
			require.WithinDuration(t, begun.Add(time.Minute), x.Until, time.Microsecond)
			got = append(got, Waiting{Who: x.Who, Follows: x.Follows})
			require.Equal(t, Waiting{Who: i, Follows: i%2 == 1}, got[i])
		}
		require.Len(t, got, 4)
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, w.lendAll(t))
	})
}

// The timer is not set for later when one comes back who has waited less than one who follows.
func TestEachFollowerHasItsOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.AcquireTimeout = time.Second
		w := crowded(t, cfg, 0)
		for range 4 {
			w.join()
			after(100 * time.Millisecond)
		}
		second := w.lead.TakeAlong(upTo(1), func(who any) bool { return who == 1 })[0]
		first := w.lead.TakeAlong(upTo(1), func(who any) bool { return who == 0 })[0]
		second.Return()
		after(600*time.Millisecond - 1)
		require.False(t, w.all[0].isDone())
		after(1)
		require.ErrorIs(t, w.all[0].err, ErrTimeout)
		require.True(t, first.Left())
		for _, q := range w.all[1:] {
			require.False(t, q.isDone())
			after(100 * time.Millisecond)
			require.ErrorIs(t, q.err, ErrTimeout)
		}
		require.NoError(t, w.lead.Release())
	})
}

// The waiter of one who was served is used again, and an old Follower does not speak for its new owner.
func TestAnOldFollowerSpeaksForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, quiet(1), 1)
		old := w.lead.TakeAlong(upTo(1), anybody)[0]
		old.Served(nil)
		synctest.Wait()
		next := w.join()
		try := func() {
			require.False(t, old.Served(nil))
			old.Return()
			require.True(t, old.Left())
			synctest.Wait()
			require.False(t, next.isDone())
		}
		require.Same(t, old.w, w.queue.head)
		try()
		f := w.lead.TakeAlong(upTo(1), anybody)[0]
		try()
		f.Return()
		again := w.lead.TakeAlong(upTo(1), anybody)[0]
		require.False(t, f.Served(nil), "it was taken once more")
		require.True(t, again.Served(nil))
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.EqualValues(t, 3, w.Stats().Pipelines)
		require.EqualValues(t, 2, w.Stats().Pipelined)
	})
}

func TestTakeAlongRefusesWhoMustNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Nil(t, Lease[*item]{}.TakeAlong(upTo(1), anybody))
		w := crowded(t, quiet(1), 2)
		w.Recover()
		require.Nil(t, w.lead.TakeAlong(upTo(1), anybody), "the breaker lets only one through")
		w.Activate()
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.Nil(t, w.lead.TakeAlong(upTo(1), anybody), "another has the resource")
		require.Len(t, w.all[0].lease.TakeAlong(upTo(1), anybody), 1)
		require.Equal(t, []int{0, 1}, w.lendAll(t))
	})
}

// One whose deadline has passed is about to leave.
func TestTakeAlongLeavesTheLateInTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, quiet(1), 0)
		ctx, cancel := context.WithCancel(t.Context())
		late := w.line.joinWith(func(context.Context) (Lease[*item], error) {
			return w.Acquire(overdueContext{ctx, time.Now().Add(time.Second)})
		})
		w.join()
		time.Sleep(time.Second)
		require.Equal(t, []any{0}, whoAre(w.lead.TakeAlong(upTo(2), anybody)))
		cancel()
		synctest.Wait()
		require.ErrorIs(t, late.err, context.Canceled)
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.Equal(t, []int{0}, w.lendAll(t))
	})
}

func TestALeaderIsToldWhatTheServerAllows(t *testing.T) {
	for _, c := range []struct {
		name      string
		free      int32
		resources int
	}{
		{"as many as Max", 8, 4},
		{"fewer", 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s seats
				p := s.sell(t, quiet(4), c.free)
				held := mustAll(t, p, c.resources)
				w := &caravan{Pool: p, lead: held[0], line: line{t: t, p: p}}
				for range 3 {
					w.join()
				}
				after(10 * time.Millisecond) // the server has refused more
				told := []int{}
				require.Len(t, w.lead.TakeAlong(func(waiting, resources int) int {
					told = append(told, waiting, resources)
					return 1
				}, anybody), 1)
				require.Equal(t, []int{3, c.resources}, told)
				for _, lease := range held {
					require.NoError(t, lease.Release())
				}
				synctest.Wait()
				require.Len(t, w.lendAll(t), 3)
			})
		})
	}
}

func TestAPanicInMayTakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, quiet(1), 3)
		require.Panics(t, func() {
			w.lead.TakeAlong(upTo(3), func(who any) bool {
				if who == 2 {
					panic("trouble")
				}
				return true
			})
		})
		w.consistent(t, 0)
		require.Equal(t, 3, w.Stats().Waiting)
		require.NoError(t, w.lead.Release())
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2}, w.lendAll(t))
	})
}

// A create that an acquirer has begun goes on while the acquirer follows. Its resource is for the first in
// the queue, and its error for nobody who follows.
func TestTheCreateOfAFollower(t *testing.T) {
	for _, c := range []struct {
		name string
		back bool // the follower comes back before its create ends
		err  error
	}{
		{"succeeds while it follows", false, nil},
		{"fails while it follows", false, errBroken},
		{"succeeds when it is back", true, nil},
		{"fails when it is back", true, errBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := crowded(t, quiet(2), 0)
				g := make(gate)
				w.shop.create = g.pass
				w.join()
				f := w.lead.TakeAlong(upTo(1), anybody)[0]
				w.consistent(t, 1)
				if c.back {
					f.Return()
				}
				g <- c.err
				synctest.Wait()
				if !c.back {
					w.consistent(t, 1)
					require.False(t, w.all[0].isDone())
					f.Return()
					w.consistent(t, 0)
					if c.err != nil { // it begins another create
						g <- nil
						synctest.Wait()
					}
				}
				require.True(t, w.all[0].isDone())
				if c.back && c.err != nil {
					require.ErrorIs(t, w.all[0].err, errBroken)
				} else {
					require.NoError(t, w.all[0].err)
					require.NoError(t, w.all[0].lease.Release())
				}
				require.NoError(t, w.lead.Release())
			})
		})
	}
}

// A follower that comes back during an outage waits for the next create, as others do.
func TestAFollowerThatReturnsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.Denied = func(error) bool { return true }
		w := crowded(t, cfg, 0)
		down := errors.New("down")
		w.shop.create = func(context.Context) error { return down }
		_, err := w.Acquire(t.Context())
		require.ErrorIs(t, err, down)
		w.join()
		f := w.lead.TakeAlong(upTo(1), anybody)[0]
		_, err = w.lead.Value(), w.lead.Discard() // it comes back, and nothing is open
		require.NoError(t, err)
		require.True(t, f.Left())
		w.consistent(t, 0)
		after(longestDenied)
		require.ErrorIs(t, w.all[0].err, down)
	})
}

func TestFollowersInTheHandsOfManyLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, quiet(3), 0)
		leaders := append(mustAll(t, w.Pool, 2), w.lead)
		for range 9 {
			w.join()
		}
		for i, l := range leaders {
			require.Equal(t, []any{i, i + 3}, whoAre(l.TakeAlong(upTo(2), func(who any) bool { return who.(int)%3 == i })))
			w.consistent(t, 2*(i+1))
		}
		require.NoError(t, leaders[1].Discard()) // returns its own, and no others
		w.consistent(t, 4)
		require.True(t, w.all[1].isDone())
		require.False(t, w.all[4].isDone())
		require.NoError(t, leaders[0].Release())
		w.consistent(t, 2)
		require.NoError(t, leaders[2].Release())
		w.consistent(t, 0)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, w.lendAll(t))
	})
}

// What is not a pipeline allocates nothing for it: see alloc_test.go. A pipeline allocates its slice alone.
func TestAPipelineAllocatesItsFollowersOnly(t *testing.T) {
	p, _ := sell(t, quiet(1))
	lead := must(t, p)
	ctx := t.Context()
	begin, done := make(chan struct{}), make(chan error)
	var all sync.WaitGroup
	all.Go(func() {
		for range begin {
			_, err := p.AcquireAs(ctx, nil)
			done <- err
		}
	})
	var wrong error
	allocs := testing.AllocsPerRun(1000, func() {
		begin <- struct{}{}
		var followers []Follower[*item]
		for followers = lead.TakeAlong(upTo(1), anybody); followers == nil; followers = lead.TakeAlong(upTo(1), anybody) {
			runtime.Gosched()
		}
		followers[0].Served(nil)
		if err := <-done; err != ErrServed {
			wrong = err
		}
	})
	close(begin)
	all.Wait()
	require.NoError(t, wrong)
	require.LessOrEqual(t, allocs, 1.0)
	require.NoError(t, lead.Release())
}

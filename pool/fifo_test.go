package pool

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhoeverReleasesDoesNotOvertakeTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := sell(t, quiet(1))
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		held := must(t, p)
		for _, name := range []string{"A", "B"} {
			wg.Go(func() {
				for _, turn := range []string{"0", "1", "2"} {
					l := must(t, p)
					mu.Lock()
					order = append(order, name+turn)
					mu.Unlock()
					time.Sleep(soon) // works
					assert.NoError(t, l.Release())
					// and acquires again at once
				}
			})
			synctest.Wait()
		}
		require.NoError(t, held.Release())
		wg.Wait()
		require.Equal(t, []string{"A0", "B0", "A1", "B1", "A2", "B2"}, order)
	})
}

func TestWaitersAreServedInOrderOfArrivalWhateverHappensToOthers(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			cfg := quiet(1 + random.IntN(3))
			refuse := map[int]bool{}
			var mu sync.Mutex
			lent := 0
			cfg.BeforeAcquire = func(context.Context, *item) error {
				mu.Lock()
				defer mu.Unlock()
				if lent++; refuse[lent] {
					return errBroken
				}
				return nil
			}
			for range 10 {
				refuse[random.IntN(40)] = true
			}
			p, _ := sell(t, cfg)
			held := mustAll(t, p, cfg.Max)
			l := line{t: t, p: p}
			var all []*queuer
			for range 20 {
				all = append(all, l.join())
			}
			for _, q := range all {
				if random.IntN(4) == 0 {
					q.cancel()
					synctest.Wait()
					require.ErrorIs(t, q.err, context.Canceled)
				}
			}
			// One comes back, and whoever is first has it when all is quiet.
			for {
				for _, h := range held {
					require.NoError(t, h.Release())
				}
				held = held[:0]
				synctest.Wait()
				for _, q := range all {
					if q.isDone() && q.err == nil && q.lease.Valid() {
						held = append(held, q.lease)
					}
				}
				if len(held) == 0 {
					break
				}
			}
			var last []int
			for i, q := range all {
				require.True(t, q.isDone(), "waiter %d was forgotten", i)
				if q.err == nil {
					last = append(last, q.at)
				}
			}
			if cfg.Max == 1 {
				require.True(t, slices.IsSorted(last), "served in order %v", last)
			}
		})
	}
}

func TestCancelledWaiterPassesTheResourceOnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		// The hand-over and the cancellation happen before first runs: the
		// resource is its own, and it has not noticed.
		release, cancel := held.Release, first.cancel
		cancel()
		require.NoError(t, release())
		synctest.Wait()
		require.True(t, first.isDone())
		if first.err == nil { // it may see either first
			require.False(t, second.isDone())
			require.NoError(t, first.lease.Release())
			synctest.Wait()
		}
		require.NoError(t, second.err)
		require.True(t, second.lease.Valid())
		require.NoError(t, second.lease.Release())
		require.Equal(t, 1, s.madeSoFar())
		require.Equal(t, 1, p.Stats().Idle)
	})
}

// The race of the test above, by hand: every interleaving has its turn.
func TestResourceHandedToACancelledWaiterIsNotLost(t *testing.T) {
	for _, successor := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := sell(t, quiet(1))
			held := must(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			p.mu.Lock()
			var tk ticket
			w, err := p.enterLocked(ctx, &tk)
			p.mu.Unlock()
			require.NoError(t, err)
			l := line{t: t, p: p}
			var next *queuer
			if successor {
				next = l.join()
			}
			require.NoError(t, held.Release()) // handed to w, who does not run
			_, ok := p.TryAcquire()
			require.False(t, ok, "it is reserved for the waiter")
			require.Equal(t, 1, p.Stats().Lent)
			cancel()
			tk.start = p.since()
			p.abandon(w, &tk)
			require.ErrorIs(t, p.refuseGone(ctx, &tk), context.Canceled)
			synctest.Wait()
			if successor {
				require.NoError(t, next.err)
				require.NoError(t, next.lease.Release())
			}
			require.Equal(t, 1, p.Stats().Idle)
			require.EqualValues(t, 1, p.Stats().Cancelled)
		})
	}
}

func TestRightToCreateIsPassedOnWhenItsWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.BeforeRelease = func(context.Context, *item) error { return errBroken }
		p, s := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		require.NoError(t, held.Release()) // refused: there is room for a new one
		first.cancel()
		synctest.Wait()
		require.NoError(t, second.err)
		require.LessOrEqual(t, s.madeSoFar(), 3)
		for _, q := range []*queuer{first, second} {
			if q.err == nil && q.lease.Valid() {
				require.NoError(t, q.lease.Release())
			}
		}
	})
}

func TestSurplusBeyondTheWaitersIsFreeForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, quiet(3))
		held := mustAll(t, p, 3)
		l := line{t: t, p: p}
		waiter := l.join()
		for _, h := range held {
			require.NoError(t, h.Release())
		}
		require.Equal(t, 2, p.Stats().Idle)
		surplus, ok := p.TryAcquire()
		require.True(t, ok)
		synctest.Wait()
		require.NoError(t, waiter.err)
		require.NotEqual(t, surplus.Value(), waiter.lease.Value())
		require.NoError(t, surplus.Release())
		require.NoError(t, waiter.lease.Release())
		require.Equal(t, 3, s.madeSoFar())
	})
}

func TestRefusedResourceDoesNotCostTheWaiterItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		cfg := quiet(2)
		cfg.BeforeAcquire = func(_ context.Context, v *item) error {
			if refused < 2 && v.id == refused+1 {
				refused++
				time.Sleep(soon) // the others queue up meanwhile
				return errBroken
			}
			return nil
		}
		p, _ := sell(t, cfg)
		held := mustAll(t, p, 2)
		l := line{t: t, p: p}
		first := l.join()
		require.NoError(t, held[0].Release()) // number 1 is handed to first, who will refuse it
		second, third := l.join(), l.join()
		after(2 * soon) // first is back in the queue; a new one is created
		require.NoError(t, first.err)
		require.Equal(t, 3, first.lease.Value().id)
		require.False(t, second.isDone())
		require.NoError(t, first.lease.Release())
		synctest.Wait()
		require.NoError(t, second.err)
		require.False(t, third.isDone())
		require.NoError(t, second.lease.Release())
		synctest.Wait()
		require.NoError(t, third.lease.Release())
		require.NoError(t, held[1].Release())
		require.EqualValues(t, 1, p.Stats().Destroyed.BeforeAcquire)
	})
}

// Between the refusal and the return to the queue there is no moment in which
// somebody who came later could be served.
func TestRefusedAcquirerKeepsItsResourceUntilItIsBackInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		cfg := quiet(1) // without Destroy the place is free at once
		cfg.Create = func(context.Context) (*item, error) { n++; return &item{n}, nil }
		cfg.BeforeAcquire = func(context.Context, *item) error { return errBroken }
		p, err := New(cfg)
		require.NoError(t, err)
		held := must(t, p)
		l := line{t: t, p: p}
		tk := ticket{seq: 1}
		later := l.join()
		require.Equal(t, errRefused, p.prepare(t.Context(), held.r, &tk))
		synctest.Wait()
		require.Zero(t, p.creating, "nothing has been started for the other")
		_, w, err := p.enter(t.Context(), &tk, held.r)
		require.NoError(t, err)
		mine, fresh, err := p.await(t.Context(), w, &tk)
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 2, mine.value.id)
		require.False(t, later.isDone())
		require.NoError(t, Lease[*item]{mine, mine.stamp}.Release())
		synctest.Wait()
		require.NoError(t, later.err)
		require.NoError(t, later.lease.Release())
		p.Close()
	})
}

func TestQueueReadmitsByArrival(t *testing.T) {
	var q waitQueue[int]
	at := func(seq uint64) *waiter[int] { return &waiter[int]{seq: seq} }
	five, seven, one, three := at(5), at(7), at(1), at(3)
	q.push(five)
	q.push(seven)
	q.readmit(three)
	q.readmit(one)
	got := func() (seqs []uint64) {
		for w := q.head; w != nil; w = w.next {
			seqs = append(seqs, w.seq)
		}
		return seqs
	}
	require.Equal(t, []uint64{1, 3, 5, 7}, got())
	q.remove(three)
	require.Equal(t, []uint64{1, 5, 7}, got())
	require.Same(t, one, q.take())
	q.remove(seven)
	q.push(at(9))
	require.Equal(t, []uint64{5, 9}, got())
	q.remove(five)
	require.Same(t, q.tail, q.take())
	q.readmit(at(2))
	require.Equal(t, []uint64{2}, got())
	require.Equal(t, 1, q.n)
}

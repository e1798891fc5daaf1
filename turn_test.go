package pooldriver

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// queue is a turn that somebody has, with others who wait for it, in a bubble of
// synctest.
type queue struct {
	turn  turn
	order []int // in which those who waited got the turn
	gone  []int // who got an error
}

// join waits for the turn in a goroutine and, with the turn, calls then.
func (q *queue) join(ctx context.Context, who int, then func()) {
	go func() {
		if err := q.turn.take(ctx); err != nil {
			q.gone = append(q.gone, who)
			return
		}
		q.order = append(q.order, who)
		then()
	}()
	synctest.Wait()
}

func (q *queue) requireFree(t *testing.T) {
	t.Helper()
	require.Empty(t, q.turn.waiting)
	require.True(t, q.turn.try())
	q.turn.pass()
	require.Equal(t, turnFree, q.turn.state.Load())
}

func TestTheTurnIsHandedOverInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.turn.try())
		for who := range 5 {
			q.join(t.Context(), who, q.turn.pass)
		}
		q.turn.pass()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, q.order)
		q.requireFree(t)
	})
}

func TestWhoGivesTheTurnBackDoesNotOvertakeThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.turn.try())
		for who := range 3 {
			q.join(t.Context(), who, q.turn.pass)
		}
		q.turn.pass()
		require.False(t, q.turn.try(), "it belongs to the first who waits, whether that one runs already or not")
		require.NoError(t, q.turn.take(t.Context()))
		require.Equal(t, []int{0, 1, 2}, q.order, "all of them were there before")
		q.turn.pass()
		q.requireFree(t)
	})
}

func TestATurnThatIsWantedIsNotFreeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.turn.try())
		ctx, cancel := context.WithCancel(t.Context())
		q.join(ctx, 1, q.turn.pass)
		require.False(t, q.turn.try())
		cancel()
		synctest.Wait()
		require.Equal(t, []int{1}, q.gone)
		require.False(t, q.turn.try(), "who waited has left, and who has it has not")
		q.turn.pass()
		q.requireFree(t)
	})
}

func TestWhoStopsWaitingLeavesTheOrderOfTheOthers(t *testing.T) {
	for _, leaves := range [][]int{{0}, {2}, {4}, {0, 1}, {1, 3}, {3, 4}, {0, 2, 4}, {0, 1, 2, 3, 4}} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.turn.try())
			cancels := make([]context.CancelFunc, 5)
			for who := range cancels {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels[who] = cancel
				q.join(ctx, who, q.turn.pass)
			}
			stay := []int(nil)
			for who := range cancels {
				if !slices.Contains(leaves, who) {
					stay = append(stay, who)
				}
			}
			for _, who := range leaves {
				cancels[who]()
				synctest.Wait()
			}
			require.Equal(t, leaves, q.gone)
			q.turn.pass()
			synctest.Wait()
			require.Equal(t, stay, q.order)
			q.requireFree(t)
		})
	}
}

// The waiter finds both the turn and the end of its context when it wakes up,
// and select takes either.
func TestATurnGrantedToWhoHasJustLeftGoesToTheNext(t *testing.T) {
	outcomes := map[bool]int{}
	for round := range 400 {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.turn.try())
			ctx, cancel := context.WithCancel(t.Context())
			q.join(ctx, 1, q.turn.pass)
			q.join(t.Context(), 2, q.turn.pass)
			if round%2 == 0 {
				q.turn.pass()
				cancel()
			} else {
				cancel()
				q.turn.pass()
			}
			synctest.Wait()
			granted := len(q.gone) == 0
			outcomes[granted]++
			if granted {
				require.Equal(t, []int{1, 2}, q.order)
			} else {
				require.Equal(t, []int{1}, q.gone)
				require.Equal(t, []int{2}, q.order)
			}
			q.requireFree(t)
		})
	}
	require.NotZero(t, outcomes[true])
	require.NotZero(t, outcomes[false], "never was a turn granted to somebody who had left")
}

func TestATurnGrantedToWhoHasJustLeftIsFreeIfNobodyElseWaits(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.turn.try())
			ctx, cancel := context.WithCancel(t.Context())
			q.join(ctx, 1, q.turn.pass)
			q.turn.pass()
			cancel()
			synctest.Wait()
			q.requireFree(t)
		})
	}
}

// TestTheTurnHasOneHolderAtATimeAndStrandsNobody does everything at once.
func TestTheTurnHasOneHolderAtATimeAndStrandsNobody(t *testing.T) {
	random := seeded(t)
	var (
		subject turn
		holders atomic.Int32
		got     atomic.Int64
		guarded int // the race detector sees two holders
		wg      sync.WaitGroup
	)
	work := func() {
		if n := holders.Add(1); n != 1 {
			t.Errorf("%d have the turn", n)
		}
		guarded++
		got.Add(1)
		holders.Add(-1)
		subject.pass()
	}
	stop := watch(t, time.Minute)
	for range 16 {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		wg.Go(func() {
			for range rounds(2_000, 100_000) {
				switch own.IntN(5) {
				case 0:
					if subject.try() {
						work()
					}
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(own.IntN(50))*time.Microsecond)
					if subject.take(ctx) == nil {
						work()
					}
					cancel()
				case 2:
					ctx, cancel := context.WithCancel(context.Background())
					go cancel() // at any moment
					if subject.take(ctx) == nil {
						work()
					}
				default:
					if err := subject.take(context.Background()); err != nil {
						t.Errorf("a wait without an end ended: %v", err)
						return
					}
					if own.IntN(4) == 0 {
						runtime.Gosched()
					}
					work()
				}
			}
		})
	}
	wg.Wait()
	stop()
	require.EqualValues(t, got.Load(), guarded)
	require.Empty(t, subject.waiting)
	require.Equal(t, turnFree, subject.state.Load())
}

package fairlock

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

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// queue is a locked mutex with its waiters, in a bubble of synctest.
type queue struct {
	mutex Mutex
	order []int // in which the waiters got the lock
	gone  []int // who gave up
}

// join locks in a goroutine and, with the lock, calls then.
func (q *queue) join(ctx context.Context, who int, then func()) {
	go func() {
		if err := q.mutex.Lock(ctx); err != nil {
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
	require.Empty(t, q.mutex.waiting)
	require.True(t, q.mutex.TryLock())
	q.mutex.Unlock()
	require.Equal(t, unlocked, q.mutex.state.Load())
}

func TestTheLockIsHandedOverInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.mutex.TryLock())
		for who := range 5 {
			q.join(t.Context(), who, q.mutex.Unlock)
		}
		q.mutex.Unlock()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, q.order)
		q.requireFree(t)
	})
}

func TestUnlockAndLockDoNotOvertakeWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.mutex.TryLock())
		for who := range 3 {
			q.join(t.Context(), who, q.mutex.Unlock)
		}
		q.mutex.Unlock()
		require.False(t, q.mutex.TryLock(), "it belongs to the first who waits, whether that one runs already or not")
		require.NoError(t, q.mutex.Lock(t.Context()))
		require.Equal(t, []int{0, 1, 2}, q.order, "all of them were there before")
		q.mutex.Unlock()
		q.requireFree(t)
	})
}

func TestAContendedLockIsNotFreeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.True(t, q.mutex.TryLock())
		ctx, cancel := context.WithCancel(t.Context())
		require.False(t, q.mutex.Contended())
		q.join(ctx, 1, q.mutex.Unlock)
		require.False(t, q.mutex.TryLock())
		require.True(t, q.mutex.Contended())
		cancel()
		synctest.Wait()
		require.False(t, q.mutex.Contended())
		require.Equal(t, []int{1}, q.gone)
		require.False(t, q.mutex.TryLock(), "who waited has left, and who has it has not")
		q.mutex.Unlock()
		q.requireFree(t)
	})
}

func TestAWaiterThatGivesUpLeavesTheOrderOfTheOthers(t *testing.T) {
	for _, leaves := range [][]int{{0}, {2}, {4}, {0, 1}, {1, 3}, {3, 4}, {0, 2, 4}, {0, 1, 2, 3, 4}} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.mutex.TryLock())
			cancels := make([]context.CancelFunc, 5)
			for who := range cancels {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels[who] = cancel
				q.join(ctx, who, q.mutex.Unlock)
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
			q.mutex.Unlock()
			synctest.Wait()
			require.Equal(t, stay, q.order)
			q.requireFree(t)
		})
	}
}

// The waiter finds both the lock and the end of its context when it wakes up,
// and select takes either.
func TestALockGrantedToAWaiterThatGivesUpGoesToTheNext(t *testing.T) {
	outcomes := map[bool]int{}
	for round := range 400 {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.mutex.TryLock())
			ctx, cancel := context.WithCancel(t.Context())
			q.join(ctx, 1, q.mutex.Unlock)
			q.join(t.Context(), 2, q.mutex.Unlock)
			if round%2 == 0 {
				q.mutex.Unlock()
				cancel()
			} else {
				cancel()
				q.mutex.Unlock()
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
	require.NotZero(t, outcomes[false], "the lock was never granted to a waiter that gave up")
}

func TestATurnGrantedToWhoHasJustLeftIsFreeIfNobodyElseWaits(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			require.True(t, q.mutex.TryLock())
			ctx, cancel := context.WithCancel(t.Context())
			q.join(ctx, 1, q.mutex.Unlock)
			q.mutex.Unlock()
			cancel()
			synctest.Wait()
			q.requireFree(t)
		})
	}
}

// TestTheLockHasOneHolderAtATimeAndStrandsNobody does everything at once.
func TestTheLockHasOneHolderAtATimeAndStrandsNobody(t *testing.T) {
	random := randomtest.Seeded(t)
	var (
		subject Mutex
		holders atomic.Int32
		got     atomic.Int64
		guarded int // the race detector sees two holders
		wg      sync.WaitGroup
	)
	work := func() {
		if n := holders.Add(1); n != 1 {
			t.Errorf("%d hold the lock", n)
		}
		guarded++
		got.Add(1)
		holders.Add(-1)
		subject.Unlock()
	}
	stop := randomtest.Watch(t, time.Minute)
	for range 16 {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		wg.Go(func() {
			for range randomtest.Rounds(2_000, 100_000) {
				switch own.IntN(5) {
				case 0:
					if subject.TryLock() {
						work()
					}
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(own.IntN(50))*time.Microsecond)
					if subject.Lock(ctx) == nil {
						work()
					}
					cancel()
				case 2:
					ctx, cancel := context.WithCancel(context.Background())
					go cancel() // at any moment
					if subject.Lock(ctx) == nil {
						work()
					}
				default:
					if err := subject.Lock(context.Background()); err != nil {
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
	require.Equal(t, unlocked, subject.state.Load())
}

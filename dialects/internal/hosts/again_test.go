package hosts

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// silent lets people connect and says nothing more.
func silent(ctx context.Context) Outcome { <-ctx.Done(); return Outcome{Err: ctx.Err()} }

// slow is a healthy server whose login takes its time.
func slow(login time.Duration) func(context.Context) Outcome {
	return func(ctx context.Context) Outcome {
		select {
		case <-time.After(login):
			return Outcome{Fit: Fits}
		case <-ctx.Done():
			return Outcome{Err: ctx.Err()}
		}
	}
}

func TestAServerWithASlowLoginIsFoundAgain(t *testing.T) {
	for _, rest := range []func(context.Context) Outcome{down, other} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(slow(1300*time.Millisecond), rest)
			_, err := f.dial(10 * time.Second)
			require.NoError(t, err)
			f.set(0, down)
			_, err = f.dial(10 * time.Second)
			require.Error(t, err)
			f.set(0, slow(8*time.Second))
			time.Sleep(memory)
			found, err := f.dial(10 * time.Second)
			require.NoError(t, err)
			require.Equal(t, 0, found.Host)
			require.NotContains(t, found.PassedOver, "h0:1", "it is taken")
			require.False(t, f.list.hosts[0].trial)
			require.False(t, f.list.hosts[0].failed.Any())
		})
	}
}

func TestOneDialWaitsForASlowLoginAndTheOthersTellWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(silent, other)
		_, err := f.dial(10 * time.Second)
		require.Error(t, err)
		time.Sleep(memory)
		begin := time.Now()
		var dials sync.WaitGroup
		var waited atomic.Int32
		for range 20 {
			dials.Go(func() {
				_, err := f.dial(10 * time.Second)
				if err == nil {
					t.Error("a connection to nobody")
				}
				if time.Since(begin) > 2*trialPatience {
					waited.Add(1)
				}
			})
		}
		dials.Wait()
		require.EqualValues(t, 1, waited.Load())
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.False(t, f.list.hosts[0].trial)
	})
}

func TestTheErrorOfAServerTriedTwiceIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		f := newFleet(func(ctx context.Context) Outcome {
			if tries++; tries == 1 {
				return silent(ctx)
			}
			return locked(ctx)
		}, other)
		_, err := f.dial(10 * time.Second)
		require.EqualError(t, err, "the others would refuse it, too: h1:1: "+ReadWrite.Refuse(standby).Error()+"; h0:1: wrong password")
		require.Equal(t, []int{0, 1, 0}, f.asked())
		var list interface{ Unwrap() []error }
		require.ErrorAs(t, err, &list)
		require.Equal(t, errLogin, list.Unwrap()[0])
		require.Len(t, list.Unwrap(), 2)
	})
}

func TestAPanicOfASecondTryLeavesNoTrialBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		f := newFleet(func(ctx context.Context) Outcome {
			if tries++; tries == 1 {
				return silent(ctx)
			}
			panic("no")
		}, other)
		require.Panics(t, func() { _, _ = f.dial(10 * time.Second) })
		require.False(t, f.list.hosts[0].trial)
	})
}

// TestAWalkNeverHasTwoConnections: the pool has counted one.
func TestAWalkNeverHasTwoConnections(t *testing.T) {
	for _, c := range []struct {
		how   []func(context.Context) Outcome
		tries []int
		want  int
	}{
		{[]func(context.Context) Outcome{second, up}, []int{0, 1}, 1},
		{[]func(context.Context) Outcome{second, down}, []int{0, 1, 0}, 0},
		{[]func(context.Context) Outcome{second, other, second}, []int{0, 1, 2, 0}, 0},
		{[]func(context.Context) Outcome{down, second}, []int{0, 1}, 1},
		{[]func(context.Context) Outcome{second, hole}, []int{0, 1, 0}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(c.how...)
			found, err := f.dial(10 * time.Second)
			require.NoError(t, err)
			require.Equal(t, c.want, found.Host)
			require.Equal(t, c.tries, f.asked())
			require.Equal(t, 1, f.most)
			require.Equal(t, 1, f.open)
		})
	}
}

func TestASecondChoiceThatIsGoneMeanwhileIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		f := newFleet(func(ctx context.Context) Outcome {
			if tries++; tries == 1 {
				return second(ctx)
			}
			return down(ctx)
		}, other)
		_, err := f.dial(10 * time.Second)
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, "h0:1: connection refused")
		require.Zero(t, f.open)
	})
}

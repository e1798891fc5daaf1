package hosts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errRefused = errors.New("connection refused")
	errLogin   = errors.New("wrong password")
)

// fleet are servers that behave as told, and count.
type fleet struct {
	list *List

	mu    sync.Mutex
	how   []func(ctx context.Context) Outcome
	tries []int // in order
	open  int   // connections that nobody has dropped
	most  int   // of them at a time, since somebody set it to 0
}

func (f *fleet) set(host int, how func(context.Context) Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.how[host] = how
}

func up(context.Context) Outcome     { return Outcome{Fit: Fits} }
func second(context.Context) Outcome { return Outcome{Fit: Second} }
func down(context.Context) Outcome   { return Outcome{Err: errRefused} }
func other(context.Context) Outcome {
	return Outcome{Err: ReadWrite.Refuse(standby), Answered: true}
}
func locked(context.Context) Outcome {
	return Outcome{Err: errLogin, Answered: true, Final: true}
}
func hole(ctx context.Context) Outcome {
	<-ctx.Done()
	return Outcome{Err: ctx.Err(), Unreachable: true}
}

func newFleet(how ...func(context.Context) Outcome) *fleet {
	var names []string
	for i := range how {
		names = append(names, fmt.Sprintf("h%d:1", i))
	}
	return &fleet{list: New(names...), how: how}
}

func (f *fleet) try(ctx context.Context, host int, _ time.Duration) (int, Outcome) {
	f.mu.Lock()
	f.tries = append(f.tries, host)
	how := f.how[host]
	f.mu.Unlock()
	o := how(ctx)
	if o.Err == nil {
		f.mu.Lock()
		f.open++
		f.most = max(f.most, f.open)
		f.mu.Unlock()
	}
	return host, o
}

func (f *fleet) drop(int) { f.mu.Lock(); f.open--; f.mu.Unlock() }

func (f *fleet) dial(timeout time.Duration) (Found[int], error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return Walk(ctx, f.list, f.try, f.drop)
}

// asked returns whom was asked since the last call.
func (f *fleet) asked() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	tries := f.tries
	f.tries = nil
	return tries
}

func TestTheFirstServerThatFitsIsTaken(t *testing.T) {
	f := newFleet(down, other, up, up)
	found, err := f.dial(time.Second)
	require.NoError(t, err)
	require.Equal(t, 2, found.Host)
	require.Equal(t, Fits, found.Fit)
	require.Equal(t, "h0:1: connection refused; h1:1: "+ReadWrite.Refuse(standby).Error(), found.PassedOver)
	require.Equal(t, []int{0, 1, 2}, f.asked())
	require.Equal(t, 1, f.open)
}

func TestADeadServerIsTriedAgainAfterAGrowingPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(down, up)
		begin := time.Now()
		var at []time.Duration
		for time.Since(begin) < 20*time.Second {
			_, err := f.dial(time.Second)
			require.NoError(t, err)
			if f.asked()[0] == 0 {
				at = append(at, time.Since(begin))
			}
			time.Sleep(10 * time.Millisecond)
		}
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 11300 * ms, 16300 * ms}, at)
		f.set(0, up)
		time.Sleep(lastPause)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host, "it is the first of the DSN")
		f.set(0, down)
		_, err = f.dial(time.Second)
		require.NoError(t, err)
		time.Sleep(firstPause)
		f.asked()
		_, err = f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, []int{0, 1}, f.asked(), "its pauses begin anew")
	})
}

func TestManyThatFindAServerDeadAtOnceLengthenItsPauseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(func(ctx context.Context) Outcome { time.Sleep(time.Millisecond); return down(ctx) }, up)
		var dials sync.WaitGroup
		for range 10 {
			dials.Go(func() { _, _ = f.dial(time.Second) })
		}
		dials.Wait()
		f.set(0, up)
		time.Sleep(firstPause)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host)
	})
}

func TestServersThatArePausedAreTriedBeforeADialFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(down, down)
		for range 2 {
			_, err := f.dial(time.Second)
			require.ErrorIs(t, err, errRefused)
			require.EqualError(t, err, "none of 2 servers will do: h0:1: connection refused; h1:1: connection refused")
			require.Equal(t, []int{0, 1}, f.asked())
		}
		f.set(1, up)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, found.Host)
	})
}

func TestAServerOfAnotherRoleIsAskedLastAndNeverLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(other, up, up)
		for range 3 {
			found, err := f.dial(time.Second)
			require.NoError(t, err)
			require.Equal(t, 1, found.Host)
		}
		require.Equal(t, []int{0, 1, 1, 1}, f.asked())
		// The failover: the primary dies, the standby is promoted.
		f.set(1, down)
		f.set(2, other)
		f.set(0, up)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host)
		require.Equal(t, []int{1, 2, 0}, f.asked())
	})
}

func TestABlackHoleCostsItsShareAndOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(hole, up)
		begin := time.Now()
		_, err := f.dial(10 * time.Second)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(begin), "half of the time")

		time.Sleep(firstPause)
		f.asked()
		begin = time.Now()
		var dials sync.WaitGroup
		var waited atomic.Int32
		for range 20 {
			dials.Go(func() {
				_, err := f.dial(10 * time.Second)
				if err != nil {
					t.Error(err)
				}
				if time.Since(begin) > 0 {
					waited.Add(1)
				}
			})
		}
		dials.Wait()
		require.Equal(t, trialPatience, time.Since(begin))
		require.EqualValues(t, 1, waited.Load(), "one dial finds out for all")
	})
}

func TestADialThatCannotSucceedDoesNotWaitForABlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The primary is gone, the standby not yet promoted.
		f := newFleet(hole, other)
		_, err := f.dial(10 * time.Second)
		require.Error(t, err)
		begin := time.Now()
		_, err = f.dial(10 * time.Second)
		require.Error(t, err)
		require.Equal(t, firstRest+trialPatience, time.Since(begin))
	})
}

// TestAStandbyIsNotKeptBusyWhileThereIsNoPrimary: fifty tasks that try again at once
// must not keep from its work who is about to be promoted; and when it has been,
// the first of them finds it within lastRest.
func TestAStandbyIsNotKeptBusyWhileThereIsNoPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(down, other)
		var tasks sync.WaitGroup
		var promoted, served atomic.Int64
		begin := time.Now()
		const dialers = 10 // as many as the pool lets dial at a time
		for range dialers {
			tasks.Go(func() {
				for {
					if _, err := f.dial(10 * time.Second); err == nil {
						served.Add(1)
						if late := time.Since(begin) - time.Duration(promoted.Load()); late > lastRest {
							t.Errorf("served %v after the promotion", late)
						}
						return
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		promoted.Store(int64(time.Since(begin)))
		logins := 0
		for _, host := range f.asked() {
			logins += host
		}
		require.LessOrEqual(t, logins, dialers*(4+int(10*time.Second/lastRest)))
		f.set(1, up)
		tasks.Wait()
		require.EqualValues(t, dialers, served.Load())
	})
}

func TestEachServerGetsAFairShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(hole, hole, hole)
		begin := time.Now()
		_, err := f.dial(9 * time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 9*time.Second, time.Since(begin))
		require.Equal(t, []int{0, 1, 2}, f.asked())
	})
}

func TestAWrongPasswordIsTriedOnOneServer(t *testing.T) {
	f := newFleet(down, locked, up)
	_, err := f.dial(time.Second)
	require.ErrorIs(t, err, errLogin)
	require.ErrorIs(t, err, errRefused)
	require.EqualError(t, err, "the others would refuse it, too: h0:1: connection refused; h1:1: wrong password")
	require.Equal(t, []int{0, 1}, f.asked())
	var list interface{ Unwrap() []error }
	require.ErrorAs(t, err, &list)
	require.Equal(t, errLogin, list.Unwrap()[0], "who looks for one error finds what ended the walk")
}

func TestASecondChoiceIsTakenWhereThereIsNoBetterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(second, up)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, found.Host)
		require.Equal(t, 1, f.open, "the other one was dropped")
		f.asked()

		found, err = f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, []int{1}, f.asked(), "it is known who is the better one")
		require.Equal(t, 1, found.Host)

		f.set(1, down)
		found, err = f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host)
		require.Equal(t, Second, found.Fit)
		f.asked()

		_, err = f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, []int{0}, f.asked(), "nobody waits for one that is paused where there is one that will do")
		time.Sleep(firstPause)
		f.set(1, up)
		found, err = f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, found.Host)
		require.Equal(t, 5, f.open, "one for each dial")
	})
}

func TestOfSeveralSecondChoicesTheFirstIsTaken(t *testing.T) {
	f := newFleet(second, second, locked)
	found, err := f.dial(time.Second)
	require.NoError(t, err)
	require.Equal(t, 0, found.Host)
	require.Equal(t, 1, f.open)
}

func TestTheTimeIsUpBeforeEverybodyWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(up, down, up)
		ctx, cancel := context.WithCancel(t.Context())
		f.set(0, func(ctx context.Context) Outcome { cancel(); return hole(ctx) })
		_, err := Walk(ctx, f.list, f.try, f.drop)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "h1:1: not tried, the time was up; h2:1: not tried")
		f.set(0, up)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host, "that a dial was cancelled is not the server's fault")
	})
}

func TestASingleServerIsTriedAsItIs(t *testing.T) {
	f := newFleet(down)
	_, err := f.dial(time.Second)
	require.Equal(t, errRefused, err)
	f.set(0, second)
	found, err := f.dial(time.Second)
	require.NoError(t, err)
	require.Equal(t, Second, found.Fit)
}

func TestAPanicLeavesNoTrialAndNoConnectionBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(down, second)
		_, err := f.dial(time.Second)
		require.NoError(t, err)
		time.Sleep(memory)
		f.set(0, func(context.Context) Outcome { panic("no") })
		require.Panics(t, func() { _, _ = f.dial(time.Second) })
		f.set(0, up)
		found, err := f.dial(time.Second)
		require.NoError(t, err)
		require.Equal(t, 0, found.Host, "somebody else may try")
		require.Equal(t, 2, f.open)

		f.set(1, func(context.Context) Outcome { panic("no") })
		f.set(0, second)
		require.Panics(t, func() { _, _ = f.dial(time.Second) })
		require.Equal(t, 2, f.open)
	})
}

func TestTheAddressesOfANameAreTriedInTurn(t *testing.T) {
	how := map[string]Outcome{"a": {Err: errRefused}, "b": {Fit: Second}, "c": {Fit: Fits}}
	dropped := ""
	try := func(_ context.Context, address string, patience time.Duration) (string, Outcome) {
		require.Equal(t, connectPatience, patience)
		return address, how[address]
	}
	conn, o := Addresses(t.Context(), []string{"a", "b", "c"}, time.Hour, try, func(s string) { dropped += s })
	require.NoError(t, o.Err)
	require.Equal(t, "c", conn)
	require.Equal(t, Fits, o.Fit)
	require.Equal(t, "b", dropped)

	how = map[string]Outcome{"a": {Err: errRefused}, "b": {Err: errLogin, Answered: true, Final: true}}
	_, o = Addresses(t.Context(), []string{"a", "b", "c"}, 0, try, func(string) {})
	require.ErrorIs(t, o.Err, errLogin)
	require.True(t, o.Answered)
	require.True(t, o.Final)
}

// TestWhateverServersDoNothingIsLost: connections that are returned, and no
// others, stay open; a dial fails only when it has asked everybody or was refused
// for good; and in the end the first server that fits is found.
func TestWhateverServersDoNothingIsLost(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			ways := []func(context.Context) Outcome{up, second, down, other, hole, silent, down, other, slow(1300 * time.Millisecond)}
			n := 2 + r.IntN(4)
			f := newFleet(make([]func(context.Context) Outcome, n)...)
			for i := range n {
				f.set(i, ways[r.IntN(len(ways))])
			}
			var dials sync.WaitGroup
			var kept atomic.Int64
			for range 8 {
				pauses, timeouts := r.Perm(10), r.Perm(10)
				dials.Go(func() {
					for i, p := range pauses {
						time.Sleep(time.Duration(p) * 50 * time.Millisecond)
						found, err := f.dial(time.Duration(timeouts[i]+1) * time.Second)
						if err == nil {
							kept.Add(1)
						}
						if err == nil && found.Fit == Unfit {
							t.Error("a connection that does not fit")
						}
					}
				})
			}
			for range 20 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				f.set(r.IntN(n), ways[r.IntN(len(ways))])
			}
			dials.Wait()
			require.EqualValues(t, kept.Load(), f.open)
			for i := range n {
				f.set(i, down)
				require.False(t, f.list.hosts[i].trial)
			}
			best := r.IntN(n)
			f.set(best, up)
			found, err := f.dial(time.Minute)
			require.NoError(t, err)
			require.Equal(t, best, found.Host)
		})
	}
}

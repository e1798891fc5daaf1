package pool

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// alarm is a Starving that remembers its calls.
type alarm struct {
	mu    sync.Mutex
	began time.Time
	cries []cry
	then  func(nth int) // called by each, if set; nth counts from 1
}

// cry is one call of Starving.
type cry struct {
	at      time.Duration // since the alarm was set
	waiting int
}

func setAlarm(cfg *Config[*item]) *alarm {
	a := &alarm{began: time.Now()}
	cfg.Starving = func(waiting int) {
		a.mu.Lock()
		a.cries = append(a.cries, cry{time.Since(a.began), waiting})
		nth, then := len(a.cries), a.then
		a.mu.Unlock()
		if then != nil {
			then(nth)
		}
	}
	return a
}

func (a *alarm) soFar() []cry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.cries)
}

// until sleeps until d after the alarm was set, and waits for what happens
// then.
func (a *alarm) until(d time.Duration) { after(d - time.Since(a.began)) }

// settle releases whatever the given ones have got or get, one after the
// other.
func settle(t *testing.T, all ...*queuer) {
	t.Helper()
	for _, q := range all {
		synctest.Wait()
		if q.err == nil {
			require.NoError(t, q.lease.Release())
		}
	}
}

func TestStarvingIsCalledAfterStarveAfterAndAgainAsLongAsTheHeadWaits(t *testing.T) {
	for name, c := range map[string]struct{ set, every time.Duration }{
		"by default": {0, 20 * ms},
		"as set":     {3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				cfg.StarveAfter = c.set
				a := setAlarm(&cfg)
				p, _ := sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				first := l.join()
				a.until(c.every - 1)
				require.Empty(t, a.soFar())
				a.until(c.every)
				require.Equal(t, []cry{{c.every, 1}}, a.soFar())
				second, third := l.join(), l.join()
				a.until(2*c.every - 1)
				require.Len(t, a.soFar(), 1)
				a.until(2 * c.every)
				second.cancel()
				a.until(3 * c.every)
				want := []cry{{c.every, 1}, {2 * c.every, 3}, {3 * c.every, 2}}
				require.Equal(t, want, a.soFar())
				require.NoError(t, held.Release())
				settle(t, first, third)
				after(10 * c.every)
				require.Equal(t, want, a.soFar(), "nobody waits any more")
			})
		})
	}
}

func TestStarvingIsNotCalledWhenTheQueueDrainedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		a := setAlarm(&cfg)
		p, _ := sell(t, cfg)
		l := line{t: t, p: p}
		held := must(t, p)
		first := l.join()
		a.until(20*ms - 1)
		require.NoError(t, held.Release())
		settle(t, first)
		a.until(100 * ms)
		require.Empty(t, a.soFar())
		require.False(t, p.starvation.armed, "the timer sleeps")

		// One who comes later has all of its time.
		held = must(t, p)
		second := l.join()
		second.cancel()
		a.until(115 * ms)
		third := l.join() // the timer is set for second still
		a.until(135*ms - 1)
		require.Empty(t, a.soFar())
		a.until(135 * ms)
		require.Equal(t, []cry{{135 * ms, 1}}, a.soFar())
		require.NoError(t, held.Release())
		settle(t, third)
	})
}

func TestNewHeadThatWaitsShorterPostponesStarving(t *testing.T) {
	for name, leave := range map[string]func(Lease[*item], *queuer){
		"first served": func(held Lease[*item], _ *queuer) { _ = held.Release() },
		"first left":   func(_ Lease[*item], first *queuer) { first.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				a := setAlarm(&cfg)
				p, _ := sell(t, cfg)
				l := line{t: t, p: p}
				held := must(t, p)
				first := l.join()
				a.until(15 * ms)
				second := l.join()
				a.until(18 * ms)
				leave(held, first)
				a.until(35*ms - 1)
				require.Empty(t, a.soFar())
				a.until(35 * ms)
				require.Equal(t, []cry{{35 * ms, 1}}, a.soFar())
				if held.Valid() {
					require.NoError(t, held.Release())
				}
				settle(t, first, second)
			})
		})
	}
}

func TestReleaseInsideStarvingServesTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		a := setAlarm(&cfg)
		p, _ := sell(t, cfg)
		held := must(t, p)
		a.then = func(int) {
			_ = p.Stats()
			_ = held.Release()
		}
		start := time.Now()
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20*ms, time.Since(start))
		after(time.Second)
		require.Len(t, a.soFar(), 1)

		// The queue was empty when it returned: the next one starves anew.
		held, start = l, time.Now()
		l, err = p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20*ms, time.Since(start))
		require.Len(t, a.soFar(), 2)
		require.NoError(t, l.Release())
	})
}

func TestCallsOfStarvingBeginStarveAfterApartWhoeverIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		a := setAlarm(&cfg)
		p, _ := sell(t, cfg)
		held := mustAll(t, p, 2)
		a.then = func(nth int) { _ = held[nth-1].Release() }
		l := line{t: t, p: p}
		first := l.join()
		a.until(15 * ms)
		second := l.join()
		a.until(40 * ms)
		require.True(t, first.isDone())
		require.True(t, second.isDone())
		require.Equal(t, []cry{{20 * ms, 2}, {40 * ms, 1}}, a.soFar())
		settle(t, first, second)
	})
}

func TestStarvingThatFailsIsReportedAndCalledAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fail func()
		want string
	}{
		"panic":  {func() { panic("trouble") }, "Starving: pool: Starving panicked: string: trouble"},
		"Goexit": {runtime.Goexit, "Starving: pool: Starving called runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				a := setAlarm(&cfg)
				a.then = func(int) { c.fail() }
				heard := make(chan string, 3)
				cfg.OnError = func(hook string, err error) {
					heard <- hook + ": " + err.Error()
					c.fail()
				}
				p, _ := sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				q := l.join()
				a.until(40 * ms)
				require.Equal(t, []cry{{20 * ms, 1}, {40 * ms, 1}}, a.soFar())
				require.Len(t, heard, 2)
				require.Equal(t, c.want, <-heard)
				require.Equal(t, c.want, <-heard)
				require.NoError(t, held.Release())
				settle(t, q)
			})
		})
	}
}

func TestLongStarvingDelaysTheNextCallAndDoesNotOverlapIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		a := setAlarm(&cfg)
		a.then = func(nth int) {
			if nth <= 2 {
				time.Sleep(50 * ms)
			}
		}
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		first := l.join()
		a.until(25 * ms)
		second := l.join() // while it runs
		a.until(60 * ms)
		p.mu.Lock()
		p.starveLocked() // a timer that had fired already, and stood at the lock
		p.mu.Unlock()
		a.until(70*ms - 1)
		require.Equal(t, []cry{{20 * ms, 1}}, a.soFar())
		a.until(70 * ms)
		// The queue empties and fills up again while it runs.
		first.cancel()
		second.cancel()
		a.until(90 * ms)
		third := l.join()
		a.until(120*ms - 1)
		require.Len(t, a.soFar(), 2)
		a.until(140 * ms)
		require.Equal(t, []cry{{20 * ms, 1}, {70 * ms, 2}, {120 * ms, 1}, {140 * ms, 1}}, a.soFar())
		require.NoError(t, held.Release())
		settle(t, third)
	})
}

func TestClosedPoolDoesNotCallStarving(t *testing.T) {
	for name, c := range map[string]struct {
		closeAt time.Duration
		calls   int
	}{
		"closed before the first call": {10 * ms, 0},
		"closed during a call":         {25 * ms, 1},
		"closed between two calls":     {35 * ms, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				a := setAlarm(&cfg)
				a.then = func(int) { time.Sleep(10 * ms) }
				p, _ := sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				q := l.join()
				a.until(c.closeAt)
				p.Close()
				require.False(t, p.starvation.timer.Stop(), "a timer was left behind")
				after(time.Second)
				require.ErrorIs(t, q.err, ErrClosed)
				require.ErrorIs(t, l.join().err, ErrClosed)
				after(time.Second)
				require.Len(t, a.soFar(), c.calls)
				require.False(t, p.starvation.timer.Stop(), "a timer was left behind")
				require.NoError(t, held.Release())
			})
		})
	}
}

// Close meets a timer that has fired and waits for the lock.
func TestStarvingIsNotCalledByATimerThatFiredJustBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		a := setAlarm(&cfg)
		p, _ := sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		a.until(20*ms - 1)
		p.Close()
		time.Sleep(time.Nanosecond)
		p.mu.Lock()
		p.starveLocked()
		p.mu.Unlock()
		synctest.Wait()
		require.ErrorIs(t, q.err, ErrClosed)
		require.Empty(t, a.soFar())
		require.False(t, p.starvation.armed)
		require.NoError(t, held.Release())
	})
}

func TestWaiterBackInTheQueueStarvesByWhenItsWaitingBegan(t *testing.T) {
	for name, c := range map[string]struct {
		joins time.Duration // when another one queues; 0: nobody does
		hook  time.Duration // how long Starving runs
		want  []cry
	}{
		"the timer sleeps":             {0, 0, []cry{{40 * ms, 1}, {60 * ms, 1}}},
		"the timer is set for later":   {35 * ms, 0, []cry{{40 * ms, 2}, {60 * ms, 2}}},
		"Starving was called just now": {15 * ms, 0, []cry{{35 * ms, 1}, {55 * ms, 2}}},
		"Starving runs":                {15 * ms, 21 * ms, []cry{{35 * ms, 1}, {56 * ms, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				a := setAlarm(&cfg)
				a.then = func(int) { time.Sleep(c.hook) }
				refused := false
				cfg.BeforeAcquire = func(context.Context, *item) error {
					if refused {
						return nil
					}
					refused = true
					time.Sleep(30 * ms)
					return errBroken
				}
				g := make(gate, 2)
				g <- nil
				p, _ := (&shop{create: g.pass}).sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				queue := []*queuer{l.join()}
				a.until(10 * ms)
				require.NoError(t, held.Release()) // refused at 40 ms
				if c.joins > 0 {
					a.until(c.joins)
					queue = append(queue, l.join())
				}
				a.until(60 * ms)
				require.Equal(t, c.want, a.soFar())
				g <- nil
				settle(t, queue...)
				after(time.Second) // nothing runs any more
			})
		})
	}
}

// A waiter behind another does not know when its waiting began until it has left the lock.
func TestWaiterThatHasNotLookedAtTheClockYetDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		a := setAlarm(&cfg)
		p, _ := sell(t, cfg)
		held := must(t, p)
		var first, tk ticket
		p.mu.Lock()
		ahead, err := p.enterLocked(t.Context(), &first)
		require.NoError(t, err)
		w, err := p.enterLocked(t.Context(), &tk)
		require.NoError(t, err)
		p.removeLocked(ahead)
		p.mu.Unlock()
		require.Zero(t, tk.start)
		a.until(30 * ms)
		require.Empty(t, a.soFar())
		go func() {
			if r, _, err := p.await(context.Background(), w, &tk); err == nil {
				_ = Lease[*item]{r, r.stamp}.Release()
			}
		}()
		a.until(50*ms - 1)
		require.Empty(t, a.soFar())
		a.until(50 * ms)
		require.Equal(t, []cry{{50 * ms, 1}}, a.soFar())
		require.NoError(t, held.Release())
		synctest.Wait()
	})
}

func TestWithoutStarvingOrWithoutItsTimeThereIsNoTimer(t *testing.T) {
	for name, set := range map[string]func(*Config[*item]) *alarm{
		"no hook": func(cfg *Config[*item]) *alarm { cfg.StarveAfter = ms; return &alarm{} },
		"no time": func(cfg *Config[*item]) *alarm { cfg.StarveAfter = -1; return setAlarm(cfg) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quiet(1)
				cfg.BeforeAcquire = func(context.Context, *item) error { return errBroken }
				a := set(&cfg)
				p, _ := sell(t, cfg)
				held := must(t, p)
				l := line{t: t, p: p}
				q := l.join()
				after(time.Hour)
				require.NoError(t, held.Release()) // refused: q is readmitted
				settle(t, q)
				require.Empty(t, a.soFar())
				require.Nil(t, p.starvation.timer)
			})
		})
	}
}

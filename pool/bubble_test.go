package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// inAndOut uses a pool of two outside, in two bubbles and outside again, with step each time.
func inAndOut(t *testing.T, p *Pool[*item], step func(t *testing.T)) {
	t.Run("outside", step)
	for range 2 {
		synctest.Test(t, step)
	}
	t.Run("outside again", step)
	for range 2 {
		synctest.Test(t, step)
	}
	p.Close()
}

// crowdTimeout is long enough that a busy machine does not let the other waiters of crowdOf run into it.
const crowdTimeout = 300 * ms

// requireAbout allows for a busy machine, whose timers are late.
func requireAbout(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, got, want-10*ms)
	require.Less(t, got, want+time.Minute)
}

// crowdOf has waiters, one that gives up, and one that has to wait for too long.
func crowdOf(t *testing.T, p *Pool[*item]) (timedOut uint64) {
	ctx := context.Background()
	var timeouts atomic.Uint64
	timeouts.Add(1)
	first, err := p.Acquire(ctx)
	require.NoError(t, err)
	second, err := p.Acquire(ctx)
	require.NoError(t, err)
	start := time.Now()
	_, err = p.Acquire(ctx)
	require.ErrorIs(t, err, ErrTimeout)
	requireAbout(t, crowdTimeout, time.Since(start))
	var own *AcquireError
	require.ErrorAs(t, err, &own)
	requireAbout(t, crowdTimeout, own.Waited)

	short, cancel := context.WithTimeout(ctx, 10*ms)
	defer cancel()
	_, err = p.Acquire(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	got := make(chan error)
	for range 3 {
		go func() {
			l, err := p.Acquire(ctx)
			for ; errors.Is(err, ErrTimeout); timeouts.Add(1) { // the machine stood still before the others were released
				l, err = p.Acquire(ctx)
			}
			if err == nil {
				err = l.Release()
			}
			got <- err
		}()
	}
	time.Sleep(20 * ms)
	for _, w := range p.Waiting() {
		require.WithinDuration(t, time.Now(), w.Since, time.Minute)
	}
	require.NoError(t, first.Release())
	require.NoError(t, second.Release())
	for range 3 {
		require.NoError(t, <-got)
	}
	return timeouts.Load()
}

func TestPoolServesInABubbleAndOutsideAgain(t *testing.T) {
	var starved atomic.Int64 // a call may still be on its way back when the crowd has ended
	p, err := New(Config[*item]{
		Create:         func(context.Context) (*item, error) { return &item{}, nil },
		Check:          func(context.Context, *item) error { return nil },
		BeforeAcquire:  func(context.Context, *item) error { return nil },
		Starving:       func(int) { starved.Add(1) },
		Max:            2,
		MinIdle:        1,
		AcquireTimeout: crowdTimeout,
		CheckInterval:  time.Minute,
	})
	require.NoError(t, err)
	inAndOut(t, p, func(t *testing.T) {
		before := p.Stats()
		begun := starved.Load()
		timeouts := crowdOf(t, p)
		for range 1000 { // its goroutine may not have run yet
			if starved.Load() > begun {
				break
			}
			time.Sleep(ms)
		}
		require.Greater(t, starved.Load(), begun, "Starving was called here, too")
		running := func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.starvation.running
		}
		for running() { // what runs outside would last for hours of the next bubble
			time.Sleep(ms)
		}
		s := p.Stats()
		require.Zero(t, s.Destroyed.Lifetime+s.Destroyed.IdleTime)
		require.Less(t, s.WaitMax, time.Minute)
		require.Equal(t, before.Timeouts+timeouts, s.Timeouts)
	})
}

func TestPoolOutageInABubbleAndOutsideAgain(t *testing.T) {
	down := true
	p, err := New(Config[*item]{
		Create: func(context.Context) (*item, error) {
			if down {
				return nil, errors.New("down")
			}
			return &item{}, nil
		},
		Denied:         func(error) bool { return true },
		Max:            2,
		AcquireTimeout: 3 * time.Second,
	})
	require.NoError(t, err)
	inAndOut(t, p, func(t *testing.T) {
		down = true
		_, err := p.Acquire(context.Background())
		require.ErrorContains(t, err, "down")
		down = false
		time.Sleep(longestDenied)
		l, err := p.Acquire(context.Background())
		require.NoError(t, err)
		require.NoError(t, l.Discard())
	})
}

func TestPoolClosesInABubbleAndOutside(t *testing.T) {
	for _, inside := range []bool{false, true} {
		p, err := New(Config[*item]{Create: func(context.Context) (*item, error) { return &item{}, nil }, Max: 2, AcquireTimeout: crowdTimeout})
		require.NoError(t, err)
		use := func(t *testing.T) { crowdOf(t, p) }
		done := func(t *testing.T) {
			require.NoError(t, p.CloseContext(t.Context()))
			_, err := p.Acquire(t.Context())
			require.ErrorIs(t, err, ErrClosed)
		}
		if inside {
			use(t)
			synctest.Test(t, done)
		} else {
			synctest.Test(t, use)
			done(t)
		}
	}
}

// A limit on the age holds in a bubble that the pool was not made in, where its clock does not
// tick, and after it.
func TestPoolLifetimeInABubble(t *testing.T) {
	created := 0
	p, err := New(Config[*item]{
		Create:      func(context.Context) (*item, error) { created++; return &item{}, nil },
		Max:         1,
		MaxLifetime: time.Hour,
	})
	require.NoError(t, err)
	use := func() {
		l, err := p.Acquire(context.Background())
		require.NoError(t, err)
		require.NoError(t, l.Release())
	}
	use()
	require.Equal(t, 1, created)
	time.Sleep(time.Second) // the clock's timer stops after two ticks; on a busy machine they come late
	synctest.Test(t, func(t *testing.T) {
		use()
		require.Equal(t, 1, created, "26 years ago is not an hour later")
		time.Sleep(2 * time.Hour)
		use() // too old when it comes back
		use()
		require.Equal(t, 2, created)
	})
	use()
	require.Equal(t, 2, created)
	p.Close()
}

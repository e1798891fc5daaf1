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

var errFull = errors.New("too many clients")

// seats is a server that has room for so many.
type seats struct {
	free  atomic.Int32
	asked atomic.Int32
}

func (s *seats) create(context.Context) error {
	time.Sleep(time.Millisecond)
	s.asked.Add(1)
	if s.free.Add(-1) < 0 {
		s.free.Add(1)
		return errFull
	}
	return nil
}

// sell makes a pool on the server.
func (s *seats) sell(t *testing.T, cfg Config[*item], free int32) *Pool[*item] {
	s.free.Store(free)
	cfg.Full = func(err error) bool { return err == errFull }
	p, _ := (&shop{create: s.create, destroy: func(*item) { s.free.Add(1) }}).sell(t, cfg)
	return p
}

func TestAFullServerFailsNobodyWhileOneIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		p := s.sell(t, quiet(20), 4)
		crowd(40, 5*time.Second, func() {
			l, err := p.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Millisecond)
			_ = l.Release()
		})
		require.Equal(t, 4, p.Stats().Count)
		require.Equal(t, 4, p.Stats().Allowed)
		require.Less(t, s.asked.Load(), int32(4+20+6), "once a second")

		// There is room again.
		s.free.Add(10)
		time.Sleep(time.Second)
		crowd(20, time.Second, func() {
			l, err := p.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Millisecond)
			_ = l.Release()
		})
		require.Equal(t, 14, p.Stats().Count)
	})
}

func TestAFullServerIsAskedAgainWhereOneHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		p := s.sell(t, quiet(5), 2)
		held := mustAll(t, p, 2)
		l := line{t: t, p: p}
		q := l.join()
		after(10 * time.Millisecond)
		require.False(t, q.isDone())
		require.Equal(t, 2, p.Stats().Allowed)
		require.NoError(t, held[0].Discard())
		after(10 * time.Millisecond)
		require.True(t, q.isDone(), "in the place of the one that has gone, at once")
		require.NoError(t, q.err)
		require.NoError(t, q.lease.Release())
		require.NoError(t, held[1].Release())
		require.Equal(t, 5, p.Stats().Allowed, "one success ends it")
	})
}

func TestAFullServerWithNothingOpenIsAnOrdinaryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		p := s.sell(t, quiet(5), 0)
		_, err := p.Acquire(t.Context())
		require.ErrorIs(t, err, errFull)
		_, err = p.AcquireNow(t.Context())
		require.ErrorIs(t, err, errFull)
		require.Equal(t, 5, p.Stats().Allowed)
		require.ErrorIs(t, func() error { _, err := p.Acquire(t.Context()); return err }(), errFull)
	})
}

func TestAFullServerAndThoseThatMustNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		cfg := quiet(5)
		cfg.Min = 3
		cfg.AcquireTimeout = 500 * time.Millisecond
		p := s.sell(t, cfg, 1)
		held := must(t, p)
		after(soon)
		asked := s.asked.Load()
		_, err := p.AcquireNow(t.Context())
		require.Equal(t, ErrNoneNow, err)
		require.Equal(t, asked, s.asked.Load(), "it knows already")
		after(time.Second)
		_, err = p.AcquireNow(t.Context())
		require.Equal(t, ErrNoneNow, err)
		require.Equal(t, asked+1, s.asked.Load(), "a second has gone by")
		require.ErrorIs(t, p.Warm(t.Context()), errFull)
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "the last create failed: too many clients (max 5, active 1, idle 0, waiting 0, the server allows 1; waited 500ms)")
		require.NoError(t, held.Release())
	})
}

// Of a burst the first refusal may come before the first success.
func TestAFullServerFailsNobodyWhileOneIsBeingCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first atomic.Bool
		open := make(gate)
		cfg := quiet(4)
		cfg.Full = func(err error) bool { return err == errFull }
		p, _ := (&shop{create: func(context.Context) error {
			if first.CompareAndSwap(false, true) {
				return <-open
			}
			return errFull
		}}).sell(t, cfg)
		l := line{t: t, p: p}
		all := []*queuer{l.join(), l.join(), l.join()}
		for _, q := range all {
			require.False(t, q.isDone())
		}
		open <- nil
		for _, q := range all {
			synctest.Wait()
			require.True(t, q.isDone())
			require.NoError(t, q.err)
			require.NoError(t, q.lease.Release())
		}
	})
}

// PostgreSQL may refuse two that come at once to its last place. One of them is served then.
func TestOfTwoThatAFullServerRefusesAtOnceNoneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int32
		cfg := quiet(4)
		cfg.Full = func(err error) bool { return err == errFull }
		p, _ := (&shop{create: func(context.Context) error {
			n := now.Add(1)
			time.Sleep(time.Millisecond)
			crowded := n > 1 || now.Load() > 1
			time.Sleep(time.Millisecond)
			now.Add(-1)
			if crowded {
				return errFull
			}
			return nil
		}}).sell(t, cfg)
		l := line{t: t, p: p}
		first, second := l.join(), l.join()
		after(shortestPause + 5*time.Millisecond)
		require.True(t, first.isDone())
		require.NoError(t, first.err)
		require.False(t, second.isDone())
		require.NoError(t, first.lease.Release())
		synctest.Wait()
		require.True(t, second.isDone())
		require.NoError(t, second.err)
		require.NoError(t, second.lease.Release())
	})
}

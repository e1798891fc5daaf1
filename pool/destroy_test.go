package pool

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlaceIsTakenUntilDestroyHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		p, s := (&shop{destroy: func(*item) { g.wait() }}).sell(t, quiet(1))
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		require.NoError(t, held.Discard()) // does not wait for Destroy
		synctest.Wait()
		require.Equal(t, 1, s.madeSoFar(), "the server still has the old one")
		st := p.Stats()
		require.Equal(t, 1, st.Count)
		require.Equal(t, 1, st.Active)
		require.Equal(t, 1, st.Destroying)
		g <- nil
		synctest.Wait()
		require.NoError(t, q.err)
		require.Equal(t, 2, s.madeSoFar())
		require.NoError(t, q.lease.Release())
		close(g)
	})
}

func TestDestroyThatTakesTooLongIsOrphanedAndItsPlaceFreedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.DestroyTimeout = time.Second
		g := make(gate)
		p, s := (&shop{destroy: func(*item) { g.wait() }}).sell(t, cfg)
		held := must(t, p)
		l := line{t: t, p: p}
		q := l.join()
		require.NoError(t, held.Discard())
		after(999 * time.Millisecond)
		require.False(t, q.isDone())
		after(time.Millisecond)
		require.NoError(t, q.err)
		require.EqualValues(t, 1, p.Stats().Orphaned)
		g <- nil // it returns after all
		synctest.Wait()
		require.Equal(t, 1, p.Stats().Count)
		require.Equal(t, 2, s.madeSoFar())
		close(g)
		require.NoError(t, q.lease.Release())
	})
}

func TestDestroyThatPanicsOrExitsFreesItsPlace(t *testing.T) {
	for name, destroy := range map[string]func(*item){
		"panic": func(*item) { panic("trouble") },
		"exit":  func(*item) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := (&shop{destroy: destroy}).sell(t, quiet(1))
				require.NoError(t, must(t, p).Discard())
				synctest.Wait()
				require.Zero(t, p.Stats().Count)
				cycle(t, p, 1)
				require.Equal(t, 2, s.madeSoFar())
			})
		})
	}
}

func TestBeforeAcquireThatRefusesAndDestroyThatPanicsLeaveThePoolWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(2)
		cfg.BeforeAcquire = func(context.Context, *item) error { return errBroken }
		p, s := (&shop{destroy: func(*item) { panic("trouble") }}).sell(t, cfg)
		for range 5 {
			cycle(t, p, 1)
		}
		synctest.Wait()
		require.Equal(t, 5, s.madeSoFar())
		require.Equal(t, 1, p.Stats().Count)
	})
}

func TestDiscardDoesNotRunBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.BeforeRelease = func(context.Context, *item) error { t.Error("BeforeRelease was called"); return nil }
		p, s := sell(t, cfg)
		require.NoError(t, must(t, p).Discard())
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())
		require.EqualValues(t, 1, p.Stats().Destroyed.Discarded)
	})
}

func TestPoolWithoutDestroyFreesPlacesAtOnce(t *testing.T) {
	n := 0
	p, err := New(Config[int]{Max: 1, Create: func(context.Context) (int, error) { n++; return n, nil }})
	require.NoError(t, err)
	for want := 1; want <= 3; want++ {
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, l.Value())
		require.NoError(t, l.Discard())
		require.Zero(t, p.Stats().Count)
	}
	p.Close()
}

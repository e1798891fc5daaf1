package pool

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// preserving keeps the first item, and no other.
func preserving(max int) Config[*item] {
	cfg := quiet(max)
	cfg.Preserve = func(v *item) bool { return v.id == 1 }
	return cfg
}

func TestAPreservedResourceDoesNotAge(t *testing.T) {
	for _, min := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			cfg := preserving(2)
			cfg.Min = min
			cfg.MaxLifetime, cfg.Jitter, cfg.MaxIdleTime = time.Hour, -1, 30*time.Minute
			p, s := sell(t, cfg)
			cycle(t, p, 2)
			after(2 * time.Hour)
			require.Contains(t, s.gone(), 2)
			require.NotContains(t, s.gone(), 1)
			a := must(t, p)
			after(2 * time.Hour)
			require.NoError(t, a.Release())
			after(2 * time.Hour)
			require.NotContains(t, s.gone(), 1)
		})
	}
}

func TestAPreservedResourceIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := preserving(2)
		cfg.CheckInterval = time.Minute
		cfg.Check = func(context.Context, *item) error { return errBroken }
		p, s := sell(t, cfg)
		cycle(t, p, 2)
		after(5 * time.Minute)
		require.Equal(t, []int{2}, s.gone())
	})
}

func TestFlushLeavesAPreservedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sell(t, preserving(3))
		cycle(t, p, 3)
		p.Flush()
		synctest.Wait()
		require.ElementsMatch(t, []int{2, 3}, s.gone())
		l := must(t, p)
		require.Equal(t, 1, l.Value().id)
		p.Flush()
		require.NoError(t, l.Release())
		p.Flush()
		cycle(t, p, 1)
		synctest.Wait()
		require.NotContains(t, s.gone(), 1)
		require.Equal(t, 1, p.Stats().Idle)
	})
}

func TestWhatEndsAPreservedResource(t *testing.T) {
	t.Run("Discard", func(t *testing.T) {
		p, _ := sell(t, preserving(1))
		require.NoError(t, must(t, p).Discard())
		l := must(t, p)
		require.Equal(t, 2, l.Value().id)
		require.NoError(t, l.Release())
	})
	t.Run("Resize", func(t *testing.T) {
		p, s := sell(t, preserving(2))
		cycle(t, p, 2)
		require.NoError(t, p.Resize(1))
		require.Eventually(t, func() bool { return len(s.gone()) == 1 }, 30*time.Second, time.Millisecond)
	})
	t.Run("Close", func(t *testing.T) {
		p, s := sell(t, preserving(1))
		cycle(t, p, 1)
		p.Close()
		require.Equal(t, []int{1}, s.gone())
	})
}

func TestAPreserveThatPanicsHasSaidNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.Preserve = func(*item) bool { panic("no") }
		p, s := sell(t, cfg)
		cycle(t, p, 1)
		p.Flush()
		synctest.Wait()
		require.Equal(t, []int{1}, s.gone())
	})
}

func TestAPreserveThatEndsItsGoroutineHasSaidNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1)
		cfg.Preserve = func(*item) bool { runtime.Goexit(); return true }
		p, _ := sell(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l, err := p.Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Release())
		p.Flush()
		require.Zero(t, p.Stats().Idle)
	})
}

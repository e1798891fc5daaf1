package pool

import (
	"context"
	"go/parser"
	"go/token"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// busyConfig has every limit a pool has by default.
func busyConfig(max int) Config[*item] {
	return Config[*item]{Max: max, Create: func(context.Context) (*item, error) { return &item{}, nil }}
}

func TestAcquireAndReleaseDoNotAllocate(t *testing.T) {
	hook := func(context.Context, *item) error { return nil }
	hooked := busyConfig(2)
	hooked.BeforeAcquire, hooked.BeforeRelease, hooked.ReleaseTimeout = hook, hook, -1
	hooked.Strategy = ConsecutiveFailures(3, 1)
	fifo := busyConfig(2)
	fifo.IdleOrder = FIFO
	for name, cfg := range map[string]Config[*item]{"plain": busyConfig(2), "hooks and breaker": hooked, "fifo": fifo} {
		t.Run(name, func(t *testing.T) {
			p, err := New(cfg)
			require.NoError(t, err)
			defer p.Close()
			cycle(t, p, 2)
			ctx := context.Background()
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				l, err := p.Acquire(ctx)
				if err != nil || l.Release() != nil {
					panic("a lease did not work")
				}
			}))
			if cfg.BeforeAcquire != nil {
				return
			}
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				l, ok := p.TryAcquire()
				if !ok || l.Release() != nil {
					panic("a lease did not work")
				}
			}))
		})
	}
}

// Waiters and their channels are used again: a hand-over to somebody who
// waits, with a context that can be cancelled, allocates nothing.
func TestHandingOverDoesNotAllocate(t *testing.T) {
	starving := busyConfig(2)
	starving.Starving = func(int) {}
	for name, cfg := range map[string]Config[*item]{"plain": busyConfig(2), "with Starving": starving} {
		t.Run(name, func(t *testing.T) { handOver(t, cfg) })
	}
}

func handOver(t *testing.T, cfg Config[*item]) {
	const others = 8
	p, err := New(cfg)
	require.NoError(t, err)
	defer p.Close()
	cycle(t, p, 2)
	ctx, cancel := context.WithCancel(t.Context())
	turn := func(ctx context.Context) bool {
		l, err := p.Acquire(ctx)
		if err != nil {
			return false
		}
		runtime.Gosched() // lets the others find it taken
		return l.Release() == nil
	}
	var wg sync.WaitGroup
	for range others {
		ctx, cancel := context.WithCancel(ctx)
		wg.Go(func() {
			defer cancel()
			for turn(ctx) {
			}
		})
	}
	allocs := testing.AllocsPerRun(2000, func() {
		if !turn(ctx) {
			panic("a lease did not work")
		}
	})
	cancel()
	wg.Wait()
	require.Zero(t, allocs)
	require.Greater(t, p.Stats().Waits, uint64(1000), "they did wait")
}

func TestPackageImportsTheStandardLibraryAloneAndNoDatabase(t *testing.T) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	files := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if path == "github.com/pooldriver/pooldriver/internal/bubble" {
				continue // it imports the standard library alone: imports_test.go
			}
			first, _, _ := strings.Cut(path, "/")
			require.NotContains(t, first, ".", "%s imports %s", e.Name(), path)
			require.False(t, strings.HasPrefix(path, "database/"), "%s imports %s", e.Name(), path)
		}
	}
	require.Greater(t, files, 10)
}

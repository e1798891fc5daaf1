package pool

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Not parallel: it sets how many processors there are. It can fail without the race
// detector only, which breaks such chains by itself.
func TestHandingOverDoesNotHoldTheProcessorThatAnotherHolderWaitsFor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const waiting = 8
	p, _ := sell(t, quiet(2))
	held, other := must(t, p), must(t, p)
	var handed atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range waiting {
		wg.Go(func() {
			for !stop.Load() {
				l, err := p.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				handed.Add(1)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for p.Stats().Waiting < waiting {
		runtime.Gosched()
	}
	require.NoError(t, other.Release())
	var meanwhile []int64
	for range 101 {
		before := handed.Load()
		runtime.Gosched() // the holder of the first has something to do
		meanwhile = append(meanwhile, handed.Load()-before)
	}
	stop.Store(true)
	require.NoError(t, held.Release())
	wg.Wait()
	slices.Sort(meanwhile)
	// A time slice is worth thousands of them.
	require.Less(t, meanwhile[len(meanwhile)/2], int64(500))
	require.Positive(t, meanwhile[len(meanwhile)/2])
}

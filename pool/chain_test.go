package pool

import (
	"fmt"
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
	for _, c := range []struct {
		resources int
		most      int64 // hand-overs until a holder gets the processor; a time slice is worth thousands
	}{
		{2, 1500}, // 16 for each of 60 goroutines that go before one from the global queue
		{32, 350}, // with 8 for each it would be 480
	} {
		t.Run(fmt.Sprintf("of %d", c.resources), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			meanwhile := handedMeanwhile(t, c.resources)
			slices.Sort(meanwhile)
			require.LessOrEqual(t, meanwhile[len(meanwhile)/2], c.most)
			require.Positive(t, meanwhile[len(meanwhile)/2])
		})
	}
}

// handedMeanwhile is how many hand-overs there are while the holder of one of so many resources waits
// for the processor, each time.
func handedMeanwhile(t *testing.T, resources int) (meanwhile []int64) {
	p, _ := sell(t, quiet(resources))
	held := must(t, p)
	var others []Lease[*item]
	for range resources - 1 {
		others = append(others, must(t, p))
	}
	var handed atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	waiting := 8 * resources
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
	for _, l := range others {
		require.NoError(t, l.Release())
	}
	for range 101 {
		before := handed.Load()
		runtime.Gosched() // the holder of the first has something to do
		meanwhile = append(meanwhile, handed.Load()-before)
	}
	stop.Store(true)
	require.NoError(t, held.Release())
	wg.Wait()
	return meanwhile
}

package report

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailedStatementsAreCountedByClassAndWithoutEndAsOther(t *testing.T) {
	t.Parallel()
	var r Report
	for _, state := range []string{"23505", "23503", "", "4", "x'--", "\x00\x00\x00\x00\x00", "42P01", Ended} {
		r.StatementFailed(state)
	}
	require.Equal(t, map[string]uint64{"23": 2, "42": 1, Other: 4, Ended: 1}, failedOf(&r))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				r.StatementFailed(fmt.Sprintf("%02d000", i%100))
			}
		})
	}
	all.Wait()
	counted := failedOf(&r)
	require.LessOrEqual(t, len(counted), mostClasses+1, "however many classes a server has")
	sum := uint64(0)
	for _, n := range counted {
		sum += n
	}
	require.Equal(t, uint64(4008), sum)
	require.Equal(t, uint64(42), counted["23"])
	require.Greater(t, counted[Other], uint64(3000))
}

func failedOf(r *Report) map[string]uint64 {
	all := map[string]uint64{}
	r.StatementsFailed(func(class string, n uint64) { all[class] = n })
	return all
}

func TestAKnownNameCostsNoMemory(t *testing.T) {
	var r Report
	r.StatementFailed("23505")
	require.Zero(t, testing.AllocsPerRun(100, func() { r.StatementFailed("23505") }))
}

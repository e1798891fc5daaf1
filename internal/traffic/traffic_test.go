package traffic

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAReplayServesInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	var r Ring
	for _, l := range []Lending{{20, 10}, {0, 100}, {10, 100}, {30, 10}} { // as they end
		r.Add(l)
	}
	c := r.Record()
	require.Equal(t, 4, c.Lendings())
	require.Equal(t, time.Duration(110), c.For)
	require.Equal(t, 3, c.Needed())
	require.Equal(t, Waits{0, 0, 0, 0}, c.Replay(3))
	require.Equal(t, Waits{0, 0, 80, 80}, c.Replay(2), "at 100 and at 110")
	require.Equal(t, Waits{0, 90, 180, 180}, c.Replay(1))
	require.EqualValues(t, 180, c.Replay(1).Quantile(0.99))
}

// A queue that is written down naively: each step serves who has waited longest.
func TestAReplayIsThatOfANaiveQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var r Ring
		all := make([]Lending, 300)
		for i, at := range random.Perm(5000)[:len(all)] {
			all[i] = Lending{int64(at), 1 + int64(random.IntN(100))}
			r.Add(all[i])
		}
		slices.SortFunc(all, func(a, b Lending) int { return int(a.At - b.At) })
		for n := 1; n < 12; n++ {
			free := make([]int64, n)
			var waits Waits
			for _, l := range all {
				slices.Sort(free)
				begins := max(l.At, free[0])
				free[0] = begins + l.Held
				waits = append(waits, begins-l.At)
			}
			slices.Sort(waits)
			replayed := r.Record().Replay(n)
			require.Equal(t, waits[len(waits)-1], replayed[len(replayed)-1], "seed %d, %d connections", seed, n)
		}
		needed := r.Record().Needed()
		require.Zero(t, r.Record().Replay(needed).Quantile(1))
		require.NotZero(t, r.Record().Replay(needed-1).Quantile(1))
	}
}

func TestTheOldestIsForgottenFirst(t *testing.T) {
	t.Parallel()
	var r Ring
	for i := range int64(Kept + 10) {
		r.Add(Lending{i * 10, 1})
	}
	c := r.Record()
	require.Equal(t, Kept, c.Lendings())
	require.EqualValues(t, 100, c.lendings[0].At)
}

func TestWhatWasSkippedIsCountedAsLongAsItIsInTheTimeOfTheRecord(t *testing.T) {
	t.Parallel()
	var r Ring
	require.Zero(t, r.Record().Skipped)
	for i := range int64(3 * mostSkips) {
		r.Skip(i*int64(time.Second), 10)
	}
	require.EqualValues(t, mostSkips*10, r.Record().Skipped, "nothing else is known")
	r.Add(Lending{int64(3*mostSkips-1) * int64(time.Second), 1})
	require.EqualValues(t, 20, r.Record().Skipped)
	require.Zero(t, new(Ring).Record().Needed())
	require.Zero(t, new(Ring).Record().Replay(1).Quantile(0.99))
}

func TestAFullRingDoesNotAllocate(t *testing.T) {
	var r Ring
	for i := range int64(Kept) {
		r.Add(Lending{i, 1})
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Add(Lending{1, 1}) }))
}

package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request is when a statement comes, and how long the server would work on it alone; in milliseconds.
type request struct{ at, work float64 }

// served sends requests to a server of some processors through n connections. More statements than processors share these.
func served(all []request, n int, processors float64) (*Record, Waits) {
	type statement struct{ at, begun, left float64 }
	var runs, queue []*statement
	var waits Waits
	var r Ring
	for now, i := 0.0, 0; i < len(all) || len(runs) > 0; {
		speed := min(1, processors/float64(len(runs)))
		next := math.Inf(1)
		if i < len(all) {
			next = all[i].at
		}
		var ends *statement
		for _, s := range runs {
			if end := now + s.left/speed; end < next {
				next, ends = end, s
			}
		}
		for _, s := range runs {
			s.left -= speed * (next - now)
		}
		now = next
		if ends != nil {
			runs = slices.DeleteFunc(runs, func(s *statement) bool { return s == ends })
			r.Add(Lending{int64(ends.begun * 1e6), int64((now - ends.begun) * 1e6)}) // nobody waits in the record that is replayed
		} else {
			queue = append(queue, &statement{at: now, left: all[i].work})
			i++
		}
		for ; len(runs) < n && len(queue) > 0; queue = queue[1:] {
			queue[0].begun = now
			waits = append(waits, int64((now-queue[0].at)*1e6))
			runs = append(runs, queue[0])
		}
	}
	slices.Sort(waits)
	return r.Record(), waits
}

// A server that has fewer processors than connections works on each statement for a shorter time if fewer come at
// once. The replay does not know that, and says too much, never too little. Without a limit it is right.
func TestAReplaySaysTooMuchWhereStatementsShareProcessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ processors, work float64 }{{2, 7}, {4, 14}, {1000, 20}} {
		random := rand.New(rand.NewPCG(50, 12))
		var all []request
		for at := 0.0; at < 15_000; at += random.ExpFloat64() * 5 {
			all = append(all, request{at, (0.5 + random.Float64()) * c.work})
		}
		record, _ := served(all, 100, c.processors)
		needed := record.Needed()
		for _, n := range []int{needed * 9 / 10, needed * 3 / 4, needed * 6 / 10, needed / 2, needed * 4 / 10} {
			_, waits := served(all, n, c.processors)
			is, said := waits.Quantile(0.99), record.Replay(n).Quantile(0.99)
			t.Logf("%v processors, %d of %d connections: said %v, is %v", c.processors, n, needed, said, is)
			if c.processors > float64(needed) {
				require.InDelta(t, is, said, float64(time.Microsecond))
				continue
			}
			require.GreaterOrEqual(t, said, is)
		}
	}
}

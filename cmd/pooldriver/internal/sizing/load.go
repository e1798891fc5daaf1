package sizing

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Sizes returns the numbers of connections up to most that are measured: 1, 2, 3, 4, 6, 8, 12, 16 …, the
// sizes that are given, and most.
func Sizes(most int, also ...int) (all []int) {
	for n := 1; n <= most; n *= 2 {
		all = append(all, n)
		if half := n + n/2; n > 1 && half < most {
			all = append(all, half)
		}
	}
	all = append(all, most)
	for _, n := range also {
		if n >= 1 && n <= most {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const (
	// Each size is measured in many short slices, and not in one that is long: see curveOf.
	usualRounds = 40
	leastSlice  = 100 * time.Millisecond
	// leastRounds bounds the time of a slice with slow statements.
	leastRounds = 4
)

// pace is the time of a slice of one size.
type pace struct{ warmUp, window time.Duration }

// paceOf returns the pace of a size whose statements take up to p99. A server that makes connections wait for each other
// needs some statements' time until as many wait as always will. most bounds the slice.
func paceOf(slice, p99, most time.Duration) pace {
	return pace{warmUp: min(most/3, max(slice/5, p99*3/2)), window: min(most*2/3, max(slice, 3*p99))}
}

// Load measures. db must allow the largest size. It ends after lasts, or a little later: a round that has begun
// is measured to its end. When ctx ends, the complete rounds are the curve. In each round the sizes have another order.
func Load(ctx context.Context, db *sql.DB, mix []Statement, sizes []int, lasts time.Duration) Curve {
	db.SetMaxIdleConns(slices.Max(sizes))
	slice := max(leastSlice, lasts/time.Duration(usualRounds*len(sizes)))
	most := max(2*leastSlice, lasts/time.Duration(leastRounds*len(sizes)))
	random := rand.New(rand.NewPCG(1, uint64(len(mix))))
	p99 := make([]time.Duration, len(sizes))
	var rounds [][]Slice
	for begun, first := time.Now(), true; len(rounds) == 0 || time.Since(begun) < lasts; first = false {
		round := make([]Slice, len(sizes))
		for _, i := range random.Perm(len(sizes)) {
			round[i] = measure(ctx, db, mix, sizes[i], paceOf(slice, p99[i], most))
			p99[i] = max(p99[i], round[i].P99)
		}
		if ctx.Err() != nil {
			break
		}
		if !first { // that opens the connections, and finds the pace
			rounds = append(rounds, round)
		}
	}
	return curveOf(sizes, rounds)
}

// worker is one connection's share of a slice.
type worker struct {
	done   float64 // statements in the window; of one that is partly in it, that part
	times  []time.Duration
	errors int
	err    error
}

// measure runs the mix on so many connections.
func measure(ctx context.Context, db *sql.DB, mix []Statement, size int, p pace) Slice {
	from := time.Now().Add(p.warmUp)
	workers := make([]worker, size)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			workers[i].work(ctx, db, mix, i*len(mix)/size, from, from.Add(p.window))
		})
	}
	all.Wait()
	var s Slice
	var times []time.Duration
	for _, w := range workers {
		s.Rate += w.done / p.window.Seconds()
		times = append(times, w.times...)
		if s.Errors += w.errors; w.err != nil {
			s.Error = w.err.Error()
		}
	}
	if len(times) > 0 {
		slices.Sort(times)
		s.P99 = times[len(times)*99/100]
	}
	return s
}

// mostErrors is after how many errors a connection gives its slice up.
const mostErrors = 10

// work runs statements one after the other until to, from the place at in the mix.
func (w *worker) work(ctx context.Context, db *sql.DB, mix []Statement, at int, from, to time.Time) {
	conn, err := db.Conn(ctx)
	if err != nil {
		w.errors, w.err = 1, err
		return
	}
	defer func() { _ = conn.Close() }()
	for begin := time.Now(); begin.Before(to); at++ {
		err := run(ctx, conn, mix[at%len(mix)])
		end := time.Now()
		if err != nil {
			if w.errors, w.err = w.errors+1, err; w.errors >= mostErrors || ctx.Err() != nil {
				return
			}
		} else if end.After(from) {
			took := max(1, end.Sub(begin))
			inside := took - max(0, from.Sub(begin)) - max(0, end.Sub(to))
			w.done += float64(inside) / float64(took)
			w.times = append(w.times, took)
		}
		begin = end
	}
}

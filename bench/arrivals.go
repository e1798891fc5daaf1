package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The contests of arrivals: an open loop, as in overload. Statements come at random, equally many to each contender,
// whatever became of those before. A crowd that waits for its answers would send fewer to who is slower.

const (
	arrivalConns = 10
	// arrivalTurns is how many times as long as others a turn takes: the p99 needs some above it.
	arrivalTurns = 5
)

var cameIn = metric{unit: "arrivals/s", title: "came", format: perSecond}

// capacity is how many statements in a second the first contender answers to rushGoroutines that wait for them.
type capacity struct {
	once sync.Once
	each float64
}

func (k *capacity) of(b *testing.B, c client, turn time.Duration) float64 {
	k.once.Do(func() {
		ctx, cancel := turnContext()
		defer cancel()
		var n atomic.Int64
		each, _, err := capacityOf(ctx, rushGoroutines, loaded{run: func(ctx context.Context) error { return c.query(ctx, n.Add(1)%accounts) }}, turn)
		if k.each = each; err != nil {
			note(b, err)
		}
	})
	return k.each
}

// arrivals are contests at some parts of one capacity.
func (v venue) arrivals(turn time.Duration) (all []contest) {
	k := &capacity{}
	turn *= arrivalTurns
	for _, part := range []float64{0.5, 0.7, 0.9} {
		c := v.contest(fmt.Sprintf("arrivals over %d connections, %.0f %% of what %d goroutines get from %s", arrivalConns, 100*part, rushGoroutines, v.entrants[0].name),
			everywhere, arrivalConns, fillUp(arrivalConns, query), func(b *testing.B, c client) {
				each := part * k.of(b, c, turn)
				if b.Failed() {
					b.FailNow()
				}
				arrive(b, c, each, turn)
			})
		c.own = []metric{p50, p99, p999, cameIn}
		c.fresh = true
		all = append(all, c)
	}
	return all
}

// arrive sends statements for so long. The time of one runs from when it was due.
func arrive(b *testing.B, c client, each float64, lasts time.Duration) {
	ctx, cancel := turnContext()
	defer cancel()
	var (
		mu   sync.Mutex
		took []float64
		n    int
	)
	atRandom(ctx, rand.New(rand.NewPCG(loadSeed, 0)), each, lasts, func(_ time.Duration, due time.Time) func() {
		id := accountOf(0, n)
		n++
		return func() {
			err := c.query(ctx, id)
			d := time.Since(due)
			if err != nil {
				note(b, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, float64(d))
		}
	})
	if b.Failed() {
		b.FailNow()
	}
	b.ReportMetric(quantile(took, 0.5), p50.unit)
	b.ReportMetric(quantile(took, 0.99), p99.unit)
	b.ReportMetric(quantile(took, 0.999), p999.unit)
	b.ReportMetric(float64(len(took))/lasts.Seconds(), cameIn.unit)
}

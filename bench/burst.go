package main

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// The contest of the cold burst: many goroutines come at once to a pool that has
// no connection yet, and a dial takes long.

const (
	burstGoroutines = 64
	burstConns      = 32
)

var (
	finished = metric{unit: "finished-ns", title: "until all have finished", spread: true, format: nanos, compare: less}
	dialled  = metric{unit: "dialled", title: "connections opened", format: whole}
)

// burstContests are those of a venue where something is dialled.
func burstContests(v venue) []contest {
	if v.cold == nil {
		return nil
	}
	c := contest{
		section: v.name,
		name: fmt.Sprintf("cold burst: %d goroutines over at most %d connections, %v for a dial",
			burstGoroutines, burstConns, dialDelay),
		own:  []metric{finished, dialled},
		most: 10,
	}
	for _, e := range v.cold {
		if e.part == everywhere {
			c.contenders = append(c.contenders, contender{e.name, func(b *testing.B) { burst(b, e, v.dialled) }})
		}
	}
	return []contest{c}
}

// burst opens a client of its own: the pool has to be empty.
func burst(b *testing.B, e entrant, dials func() int64) {
	ctx, cancel := turnContext()
	defer cancel()
	c, err := e.open(burstConns)
	if err != nil {
		fail(b, err)
	}
	defer c.close()
	before := dials()
	errs := make([]error, burstGoroutines)
	var done sync.WaitGroup
	from := time.Now()
	for g := range errs {
		done.Go(func() { errs[g] = c.query(ctx, int64(g)) })
	}
	done.Wait()
	took := time.Since(from)
	if err := errors.Join(errs...); err != nil {
		fail(b, err)
	}
	b.ReportMetric(float64(took), finished.unit)
	b.ReportMetric(float64(dials()-before), dialled.unit)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The contests of crowds: many goroutines, each of which runs one statement after
// the other, over fewer connections. The time of a statement is taken from the
// call to its result: the wait for a connection is nearly all of it.

var (
	throughput = metric{unit: "statements/s", title: "throughput", spread: true, format: perSecond, compare: more}
	p50        = metric{unit: "p50-ns", title: "p50 wait", format: nanos}
	p99        = metric{unit: "p99-ns", title: "p99 wait", spread: true, format: nanos, compare: less}
	p999       = metric{unit: "p999-ns", title: "p99.9 wait", spread: true, format: nanos, compare: less}
	asideP99   = metric{unit: "aside-p99-ns", title: "p99 wait of the others", spread: true, format: nanos, compare: less}
	longest    = metric{unit: "max-ns", title: "max wait", format: nanos}
)

const (
	rushGoroutines = 64
	// rushStatements is the least number in a turn, so that the p99 has some
	// above it. Behind a proxy, where they take long, there are fewer.
	rushStatements    = rushGoroutines * 25
	rushStatementsFar = rushGoroutines * 12
	manyGoroutines    = 10_000
	manyConns         = 10
)

func rushName(goroutines, conns int) string {
	return fmt.Sprintf("%d goroutines over %d connections", goroutines, conns)
}

// rushContests are the contests of 64 goroutines in a venue, and that of 10,000
// with one statement each.
func rushContests(v venue, turn time.Duration) []contest {
	var contests []contest
	statements := rushStatements
	if v.far {
		statements = rushStatementsFar
	}
	for _, conns := range []int{4, 10, 32} {
		c := v.rush(rushGoroutines, conns, statements, turn).shown(place{
			chart: fmt.Sprintf("%s, p99 of %d goroutines", v.name, rushGoroutines), group: fmt.Sprintf("%d connections", conns),
			metric: p99, unit: "time that 99 of 100 queries stay below, with the wait for a connection (shorter is better)",
		})
		if conns == 4 && v.name != sectionNull { // what is promised of databases
			c.promises = []promise{better(throughput, 1), better(p99, 0.5)}
			if !v.far {
				c.more = promisedRounds
			}
		}
		contests = append(contests, c)
	}
	if !v.far {
		many := v.rush(manyGoroutines, manyConns, manyGoroutines, 0)
		many.most = 10
		contests = append(contests, many)
	}
	return contests
}

func (v venue) rush(goroutines, conns, statements int, least time.Duration) contest {
	return v.crowd(rushName(goroutines, conns), load{goroutines, conns, statements, least, queries}, query)
}

// crowd is the contest of a load. fill is what each connection has run before.
func (v venue) crowd(name string, l load, fill operation) contest {
	c := v.contest(name, everywhere, l.conns, fillUp(l.conns, fill), l.rush)
	c.own = []metric{throughput, p50, p99, longest}
	c.fresh = !c.far
	if c.far {
		c.most = 6 // the fewest that have an interval
	}
	return c
}

// load is what a crowd does in a turn: so many statements at least, and for as long.
type load struct {
	goroutines, conns, statements int
	least                         time.Duration
	// run runs the nth statement of goroutine g. aside: it is not among those whose
	// figures count, but has some of its own.
	run func(ctx context.Context, c client, g, n int) (aside bool, err error)
}

func queries(ctx context.Context, c client, g, _ int) (aside bool, err error) {
	return false, c.query(ctx, int64(g))
}

// fillUp opens all connections of a client, and runs an operation on each of them.
func fillUp(conns int, run operation) func(context.Context, client) error {
	return func(ctx context.Context, c client) error {
		for range warmUp {
			release, err := holdAll(ctx, c, conns)
			if err != nil {
				return err
			}
			release()
			errs := make([]error, 4*conns)
			var done sync.WaitGroup
			for i := range errs {
				done.Go(func() { errs[i] = run(ctx, c, int64(i)) })
			}
			done.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
		return nil
	}
}

// holdAll takes so many connections, and returns the function that gives them back.
func holdAll(ctx context.Context, c client, conns int) (release func(), err error) {
	var held []func()
	release = func() {
		for _, giveBack := range held {
			giveBack()
		}
	}
	for range conns {
		giveBack, err := c.hold(ctx)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, giveBack)
	}
	return release, nil
}

// rush runs a turn. As in crowd, all connections are held until everybody stands in
// the queue: else one goroutine runs for a slice of the scheduler's time before the
// next one has begun, and it is the scheduler that is measured.
func (l load) rush(b *testing.B, c client) {
	type end struct {
		at    time.Duration // since base
		aside bool
	}
	ctx, cancel := turnContext()
	defer cancel()
	release, err := holdAll(ctx, c, l.conns)
	if err != nil {
		fail(b, err)
	}
	var (
		issued atomic.Int64
		over   atomic.Bool
		base   = time.Now()
		ends   = make([][]end, l.goroutines) // of statements
	)
	done := wait(l.goroutines, func(g int) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for n := 0; issued.Add(1) <= int64(l.statements) || !over.Load(); n++ {
			aside, err := l.run(ctx, c, g, n)
			if err != nil {
				note(b, err)
				return
			}
			ends[g] = append(ends[g], end{time.Since(base), aside})
		}
	})
	began := time.Since(base)
	time.AfterFunc(l.least, func() { over.Store(true) })
	release()
	done.Wait()
	elapsed := time.Since(base) - began
	if b.Failed() {
		b.FailNow()
	}
	var took, aside []float64
	for _, of := range ends {
		last := began
		for _, end := range of {
			if d := float64(end.at - last); end.aside {
				aside = append(aside, d)
			} else {
				took = append(took, d)
			}
			last = end.at
		}
	}
	b.ReportMetric(float64(len(took))/elapsed.Seconds(), throughput.unit)
	b.ReportMetric(quantile(took, 0.5), p50.unit)
	b.ReportMetric(quantile(took, 0.99), p99.unit)
	b.ReportMetric(quantile(took, 0.999), p999.unit)
	b.ReportMetric(slices.Max(took), longest.unit)
	if len(aside) > 0 {
		b.ReportMetric(quantile(aside, 0.99), asideP99.unit)
	}
}

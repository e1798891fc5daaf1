package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

// contest is one case with those who compete in it. The first contender is the
// baseline.
type contest struct {
	section    string
	name       string
	contenders []contender
	promises   []promise
	// own are the metrics that contenders report themselves, where it is not
	// the time of an operation that counts; such a contender runs once in a
	// round. nil: the time of an operation.
	own []metric
	// far is set where a proxy in this process stands before the server: then
	// the process's own figures tell nothing about a contender.
	far bool
	// rounds is the most rounds that are worth their time. 0: as many as asked for.
	rounds int
	// prepare, if set, is called before the first round, and what it returns
	// after the last one.
	prepare func() (end func(), err error)
	// on says which chart shows the contest, if any.
	on place
}

type contender struct {
	name string
	run  func(b *testing.B)
}

func (c contest) metrics() []metric {
	switch {
	case c.own != nil:
		return c.own
	case c.far:
		return timing[:1]
	}
	return timing
}

// title names the contest in the whole run.
func (c contest) title() string { return c.section + ": " + c.name }

// figures are what one contender did: by the unit of a metric, a value per round.
type figures map[string][]float64

// outcome is a contest that has been run, or has not.
type outcome struct {
	contest
	missing error     // why nothing was measured
	held    int       // rounds
	figures []figures // by contender
	failed  []error   // by contender
}

// hold runs the rounds, in which each contender has a turn. Contenders
// alternate, and change who begins, so that whatever else the machine does hits
// all of them. One that fails has no more turns.
func (c contest) hold(ctx context.Context, rounds int, turn time.Duration) outcome {
	o := outcome{contest: c, failed: make([]error, len(c.contenders))}
	for range c.contenders {
		o.figures = append(o.figures, make(figures))
	}
	if c.prepare != nil {
		end, err := c.prepare()
		if err != nil {
			o.missing = err
			return o
		}
		defer end()
	}
	length := turn.String()
	if c.own != nil {
		length = "1x"
	}
	if o.missing = flag.Set("test.benchtime", length); o.missing != nil {
		return o
	}
	if c.rounds > 0 {
		rounds = min(rounds, c.rounds)
	}
	if slices.ContainsFunc(c.promises, func(p promise) bool { return p.bound }) {
		rounds *= 2 // the more there are, the narrower the interval is
	}
	o.held = rounds
	for round := range rounds {
		for i := range c.contenders {
			i := (i + round) % len(c.contenders)
			if o.failed[i] != nil {
				continue
			}
			if o.missing = ctx.Err(); o.missing != nil {
				return o
			}
			if err := o.figures[i].measure(c.contenders[i].run); err != nil {
				o.failed[i] = err
				if round > 0 {
					o.failed[i] = fmt.Errorf("failed in round %d: %w", round+1, err)
				}
			}
		}
	}
	return o
}

// measure adds what one turn shows.
func (f figures) measure(run func(*testing.B)) error {
	r := testing.Benchmark(timed(run))
	if err := takeFailure(); err != nil {
		return err
	}
	if r.N == 0 {
		return errUnsaid
	}
	f[timeMetric] = append(f[timeMetric], float64(r.T.Nanoseconds())/float64(r.N))
	f[allocsMetric] = append(f[allocsMetric], float64(r.AllocsPerOp()))
	for unit, v := range r.Extra {
		f[unit] = append(f[unit], v)
	}
	return nil
}

// complaint says in a few words that something is missing.
func (o outcome) complaint() string {
	if o.missing != nil {
		return ", " + unmeasured + ": " + oneLine(o.missing)
	}
	text := ""
	for i, err := range o.failed {
		if err != nil {
			text += ", " + o.contenders[i].name + ": " + oneLine(err)
		}
	}
	return text
}

package main

import (
	"context"
	"errors"
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
	// most is how many rounds are worth their time. 0: as many as asked for.
	most int
	// more is how many times as many rounds it takes as others. 0: as many.
	more int
	// prepare, if set, is called before the first round, and what it returns
	// after the last one.
	prepare func() (end func(), err error)
	// fresh: that is done in each round. How fast a connection is depends on the
	// server's process behind it, by 3 % and more for as long as it lives: two
	// clients of the same kind that are opened once are told apart by it, whatever
	// the number of rounds.
	fresh bool
	// apart is the server that gets processors of its own meanwhile, if any.
	apart *server
	// on says which charts show the contest, if any.
	on []place
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

// promisedRounds is how many times as many rounds a database's contest takes whose
// median is promised.
const promisedRounds = 5

const (
	// These are for contests whose interval counts: the more rounds there are, and
	// the sooner contenders alternate, the narrower it is.
	boundRounds = 40 // times as many rounds as asked for
	boundTurns  = 4  // of each contender in a round
	boundShort  = 8  // times shorter turns
)

// hold runs the rounds, in which each contender has its turns. Contenders
// alternate, and change who begins, so that whatever else the machine does hits
// all of them. One that fails has no more turns.
func (c contest) hold(ctx context.Context, rounds int, turn time.Duration) (o outcome) {
	o = outcome{contest: c, failed: make([]error, len(c.contenders))}
	for range c.contenders {
		o.figures = append(o.figures, make(figures))
	}
	if c.most > 0 {
		rounds = min(rounds, c.most)
	}
	turns, length := 1, turn
	if slices.ContainsFunc(c.promises, func(p promise) bool { return p.bound }) {
		rounds *= boundRounds
		turns, length = boundTurns, turn/boundShort
	} else if c.more > 0 {
		rounds *= c.more
	}
	benchtime := length.String()
	if c.own != nil {
		benchtime = "1x"
	}
	if o.missing = flag.Set("test.benchtime", benchtime); o.missing != nil {
		return o
	}
	o.held = rounds
	if c.apart != nil {
		var together func() error
		if together, o.missing = c.apart.standApart(ctx); o.missing != nil {
			return o
		}
		defer func() { o.missing = errors.Join(o.missing, together()) }()
	}
	if !c.fresh {
		o.missing = c.prepared(func() error { return o.rounds(ctx, 0, rounds, turns) })
		return o
	}
	for round := 0; round < rounds && o.missing == nil; round++ {
		o.missing = c.prepared(func() error { return o.rounds(ctx, round, round+1, turns) })
	}
	return o
}

// prepared calls run between prepare and its end.
func (c contest) prepared(run func() error) error {
	if c.prepare != nil {
		end, err := c.prepare()
		if err != nil {
			return err
		}
		defer end()
	}
	return run()
}

// rounds runs some of the rounds. A contender's figures of one are the medians of its
// turns.
func (o *outcome) rounds(ctx context.Context, from, to, turns int) error {
	for round := from; round < to; round++ {
		seen := make([]figures, len(o.contenders))
		for i := range turns * len(o.contenders) {
			i := (i + i/len(o.contenders) + round) % len(o.contenders)
			if o.failed[i] != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if seen[i] == nil {
				seen[i] = make(figures)
			}
			if err := seen[i].measure(o.contenders[i].run); err != nil {
				o.failed[i] = err
				if round > 0 {
					o.failed[i] = fmt.Errorf("failed in round %d: %w", round+1, err)
				}
			}
		}
		for i, f := range seen {
			for unit, values := range f {
				o.figures[i][unit] = append(o.figures[i][unit], median(values))
			}
		}
	}
	return nil
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

package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"time"
)

// contest is one case with those who compete in it. The first contender is the
// baseline; the last is ours.
type contest struct {
	name       string
	contenders []contender
	promises   []promise
	// own are the metrics that contenders report themselves, where it is not
	// the time of an operation that counts; such a contender runs once in a
	// round. nil: the time of an operation.
	own []metric
	// prepare, if set, is called before the first round, and what it returns
	// after the last one.
	prepare func() (end func(), err error)
	// missing says what it takes to hold the contest, where that is not there.
	missing string
}

type contender struct {
	name string
	run  func(b *testing.B)
}

// metric is something that is measured of each contender, once in a round.
type metric struct {
	unit   string // as testing.B.ReportMetric has it
	title  string
	spread bool // quartiles are shown, too
	format func(float64) string
}

const (
	timeMetric   = "ns/op"
	allocsMetric = "allocs/op"
)

var timing = []metric{
	{timeMetric, "median", true, nanos},
	{cpuMetric, "processor time", false, nanos},
	{allocsMetric, "allocations", false, whole},
}

func (c contest) metrics() []metric {
	if c.own != nil {
		return c.own
	}
	return timing
}

// figures are what one contender did: by the unit of a metric, a value per round.
type figures map[string][]float64

// outcome is a contest that has been run.
type outcome struct {
	contest
	figures []figures
}

// hold runs the rounds, in which each contender has a turn. Contenders
// alternate, and change who begins, so that whatever else the machine does hits
// all of them.
func (c contest) hold(rounds int, turn time.Duration) (outcome, error) {
	o := outcome{contest: c}
	for range c.contenders {
		o.figures = append(o.figures, make(figures))
	}
	if c.prepare != nil {
		end, err := c.prepare()
		if err != nil {
			return o, fmt.Errorf("%s: %w", c.name, err)
		}
		defer end()
	}
	length := turn.String()
	if c.own != nil {
		length = "1x"
	}
	if err := flag.Set("test.benchtime", length); err != nil {
		return o, err
	}
	for round := range rounds {
		for i := range c.contenders {
			i := (i + round) % len(c.contenders)
			r := testing.Benchmark(timed(c.contenders[i].run))
			if r.N == 0 { // b.Fatal; nobody prints what it was told
				return o, fmt.Errorf("%s: %s has failed", c.name, c.contenders[i].name)
			}
			o.figures[i].add(r)
		}
	}
	return o, nil
}

func (f figures) add(r testing.BenchmarkResult) {
	f[timeMetric] = append(f[timeMetric], float64(r.T.Nanoseconds())/float64(r.N))
	f[allocsMetric] = append(f[allocsMetric], float64(r.AllocsPerOp()))
	for unit, v := range r.Extra {
		f[unit] = append(f[unit], v)
	}
}

func (o outcome) base(unit string) []float64 { return o.figures[0][unit] }
func (o outcome) ours(unit string) []float64 { return o.figures[len(o.figures)-1][unit] }

// ratios are ours to the baseline's, round by round: what disturbs a round
// disturbs both. Those of the processors' time are the steadier measure where
// other machines take theirs from the same host.
func (o outcome) ratios(unit string) []float64 {
	return pairwise(o.base(unit), o.ours(unit), func(base, ours float64) float64 { return ours / base })
}

// extras are what ours takes more than the baseline, round by round.
func (o outcome) extras(unit string) []float64 {
	return pairwise(o.base(unit), o.ours(unit), func(base, ours float64) float64 { return ours - base })
}

func pairwise(base, ours []float64, f func(base, ours float64) float64) []float64 {
	v := make([]float64, len(base))
	for i := range base {
		v[i] = f(base[i], ours[i])
	}
	return v
}

func (o outcome) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", o.name)
	head, line := "|", "|---|"
	for _, m := range o.metrics() {
		head += " | " + m.title
		line += "---:|"
		if m.spread {
			head += " | quartiles"
			line += "---:|"
		}
	}
	fmt.Fprintf(w, "%s |\n%s\n", head, line)
	for i, c := range o.contenders {
		fmt.Fprintf(w, "| %s |", c.name)
		for _, m := range o.metrics() {
			v := o.figures[i][m.unit]
			fmt.Fprintf(w, " %s |", m.format(median(v)))
			if m.spread {
				fmt.Fprintf(w, " %s – %s |", m.format(quantile(v, 0.25)), m.format(quantile(v, 0.75)))
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	if o.own == nil {
		r := o.ratios(timeMetric)
		fmt.Fprintf(w, "Ratio %.2f× (quartiles %.2f – %.2f), of processor time %.2f×; difference %+.0f ns. ",
			median(r), quantile(r, 0.25), quantile(r, 0.75), median(o.ratios(cpuMetric)), median(o.extras(timeMetric)))
	}
	fmt.Fprintf(w, "Promised %s\n", o.verdict())
}

func nanos(ns float64) string {
	if ns < 10_000 {
		return fmt.Sprintf("%.0f ns", ns)
	}
	return fmt.Sprintf("%.1f µs", ns/1000)
}

func whole(n float64) string { return fmt.Sprintf("%.0f", n) }

func times(n float64) string { return fmt.Sprintf("%.2f×", n) }

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile interpolates between the two values next to q.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(s)-1)
	return s[low] + (s[high]-s[low])*(at-float64(low))
}

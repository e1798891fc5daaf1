package main

import (
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
	// atMost is the ratio to the baseline that we promise to stay below; 0
	// where nothing is promised.
	atMost float64
	// extra is what we may cost more than the baseline, where the promise is
	// a difference; 0 where nothing is promised.
	extra time.Duration
}

type contender struct {
	name string
	run  func(b *testing.B)
}

// figures are what one contender did, a value per round.
type figures struct {
	ns     []float64
	cpu    []float64 // of the processors, all threads
	allocs int64
}

// outcome is a contest that has been run.
type outcome struct {
	contest
	figures []figures
}

// hold runs the rounds. Contenders alternate, and change who begins, so that
// whatever else the machine does hits all of them.
func (c contest) hold(rounds int) outcome {
	o := outcome{contest: c, figures: make([]figures, len(c.contenders))}
	for round := range rounds {
		for i := range c.contenders {
			i := (i + round) % len(c.contenders)
			r := testing.Benchmark(timed(c.contenders[i].run))
			f := &o.figures[i]
			f.ns = append(f.ns, float64(r.T.Nanoseconds())/float64(r.N))
			f.cpu = append(f.cpu, r.Extra[cpuMetric])
			f.allocs = r.AllocsPerOp()
		}
	}
	return o
}

// ratios are ours to the baseline's, round by round: what disturbs a round
// disturbs both.
func (o outcome) ratios() []float64 {
	return quotients(o.figures[0].ns, o.figures[len(o.figures)-1].ns)
}

// cpuRatios are those of the processors' time, which is the steadier measure
// where other machines take theirs from the same host.
func (o outcome) cpuRatios() []float64 {
	return quotients(o.figures[0].cpu, o.figures[len(o.figures)-1].cpu)
}

func quotients(base, ours []float64) []float64 {
	ratios := make([]float64, len(base))
	for i := range base {
		ratios[i] = ours[i] / base[i]
	}
	return ratios
}

func (o outcome) extras() []float64 {
	base, ours := o.figures[0].ns, o.figures[len(o.figures)-1].ns
	extras := make([]float64, len(base))
	for i := range base {
		extras[i] = ours[i] - base[i]
	}
	return extras
}

// held says whether the promise was kept, by the median.
func (o outcome) held() string {
	switch {
	case o.atMost > 0 && median(o.ratios()) <= o.atMost,
		o.extra > 0 && median(o.extras()) <= float64(o.extra):
		return "yes"
	case o.atMost > 0 || o.extra > 0:
		return "**no**"
	}
	return "–"
}

func (o outcome) promise() string {
	switch {
	case o.atMost > 0:
		return fmt.Sprintf("≤ %.2f×", o.atMost)
	case o.extra > 0:
		return fmt.Sprintf("≤ +%d ns", o.extra.Nanoseconds())
	}
	return "–"
}

func (o outcome) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n| | median | quartiles | processor time | allocations |\n|---|---:|---:|---:|---:|\n", o.name)
	for i, c := range o.contenders {
		f := o.figures[i]
		fmt.Fprintf(w, "| %s | %s | %s – %s | %s | %d |\n", c.name, nanos(median(f.ns)), nanos(quantile(f.ns, 0.25)), nanos(quantile(f.ns, 0.75)), nanos(median(f.cpu)), f.allocs)
	}
	r, e := o.ratios(), o.extras()
	fmt.Fprintf(w, "\nRatio %.2f× (quartiles %.2f – %.2f), of processor time %.2f×; difference %+.0f ns. Promised %s: %s\n",
		median(r), quantile(r, 0.25), quantile(r, 0.75), median(o.cpuRatios()), median(e), o.promise(), o.held())
}

func nanos(ns float64) string {
	if ns < 10_000 {
		return fmt.Sprintf("%.0f ns", ns)
	}
	return fmt.Sprintf("%.1f µs", ns/1000)
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile interpolates between the two values next to q.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(s)-1)
	return s[low] + (s[high]-s[low])*(at-float64(low))
}

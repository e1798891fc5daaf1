package main

import (
	"fmt"
	"math"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

// confidence is that of the intervals.
const confidence = 0.95

func median(v []float64) float64 { return quantile(v, 0.5) }

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return stats.Sample{Xs: v}.Quantile(q)
}

// interval is where the median of such values lies, by order statistics: nothing
// is supposed of how they are distributed. Fewer than six bound nothing.
func interval(v []float64) (low, high float64) {
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(append([]float64(nil), v...), &benchmath.DefaultThresholds), confidence)
	return s.Lo, s.Hi
}

// span writes two bounds, where they are known.
func span(low, high float64, format func(float64) string) string {
	if math.IsInf(low, 0) || math.IsInf(high, 0) || math.IsNaN(low) || math.IsNaN(high) {
		return "unknown"
	}
	return fmt.Sprintf("%s – %s", format(low), format(high))
}

// pairwise combines two lists of values, one per round each, round by round:
// what disturbs a round disturbs both.
func pairwise(base, own []float64, f func(base, own float64) float64) []float64 {
	v := make([]float64, min(len(base), len(own)))
	for i := range v {
		v[i] = f(base[i], own[i])
	}
	return v
}

func ratio(base, own float64) float64      { return own / base }
func speed(base, own float64) float64      { return base / own }
func difference(base, own float64) float64 { return own - base }

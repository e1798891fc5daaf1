package main

import (
	"fmt"
	"math"
	"time"
)

// metric is something that is measured of each contender, once in a round.
type metric struct {
	unit    string // as testing.B.ReportMetric has it
	title   string
	spread  bool // quartiles are shown, too
	format  func(float64) string
	compare comparison
}

// comparison says whether a metric is compared with the baseline's, and which
// way is better.
type comparison int

const (
	apart comparison = iota
	less
	more
)

// of returns the ratios to the baseline, above 1 where own is better.
func (c comparison) of(base, own []float64) []float64 {
	if c == more {
		return pairwise(base, own, ratio)
	}
	return pairwise(base, own, speed)
}

const (
	timeMetric   = "ns/op"
	allocsMetric = "allocs/op"
)

var timing = []metric{
	{unit: timeMetric, title: "median", spread: true, format: nanos, compare: less},
	{unit: cpuMetric, title: "processor time", format: nanos},
	{unit: allocsMetric, title: "allocations", format: whole},
}

// nanos writes nanoseconds with three or four digits that count.
func nanos(ns float64) string {
	switch {
	case math.Abs(ns) < 10_000:
		return fmt.Sprintf("%.0f ns", ns)
	case math.Abs(ns) < float64(10*time.Millisecond):
		return fmt.Sprintf("%.1f µs", ns/1e3)
	case math.Abs(ns) < float64(10*time.Second):
		return fmt.Sprintf("%.1f ms", ns/1e6)
	}
	return fmt.Sprintf("%.1f s", ns/1e9)
}

func whole(n float64) string { return fmt.Sprintf("%.0f", n) }

func times(n float64) string { return fmt.Sprintf("%.2f×", n) }

// closely is for what is held against a limit.
func closely(n float64) string { return fmt.Sprintf("%.3f×", n) }

func bytes(n float64) string { return fmt.Sprintf("%.0f B", n) }

func perSecond(n float64) string { return fmt.Sprintf("%.0f/s", n) }

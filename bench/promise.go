package main

import (
	"fmt"
	"strings"
	"time"
)

// promise is something that we say of a contest: a figure that stays within a
// limit, in the median of the rounds.
type promise struct {
	text  string // how the limit is written
	limit float64
	of    func(outcome) []float64
}

// atMost promises a ratio of our time to the baseline's.
func atMost(ratio float64) promise {
	return promise{fmt.Sprintf("≤ %.2f×", ratio), ratio, func(o outcome) []float64 { return o.ratios(timeMetric) }}
}

// extra promises that we take no more time than the baseline and d.
func extra(d time.Duration) promise {
	return promise{fmt.Sprintf("≤ +%d ns", d.Nanoseconds()), float64(d), func(o outcome) []float64 { return o.extras(timeMetric) }}
}

// extraAllocs promises no more allocations than the baseline's and n.
func extraAllocs(n int) promise {
	return promise{fmt.Sprintf("≤ +%d allocations", n), float64(n), func(o outcome) []float64 { return o.extras(allocsMetric) }}
}

// allocs promises a number of allocations.
func allocs(n int) promise {
	return promise{fmt.Sprintf("≤ %d allocations", n), float64(n), func(o outcome) []float64 { return o.ours(allocsMetric) }}
}

// within promises a limit for one of our own metrics.
func within(m metric, limit float64) promise {
	return promise{m.title + " ≤ " + m.format(limit), limit, func(o outcome) []float64 { return o.ours(m.unit) }}
}

// verdict says of each promise whether it was kept.
func (o outcome) verdict() string {
	if len(o.promises) == 0 {
		return "–: –"
	}
	var kept []string
	for _, p := range o.promises {
		word := "yes"
		if !(median(p.of(o)) <= p.limit) { // no number is no, too
			word = "**no**"
		}
		kept = append(kept, p.text+": "+word)
	}
	return strings.Join(kept, "; ")
}

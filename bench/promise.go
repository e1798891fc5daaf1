package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// promise is something that we say of a contest: a figure that stays within a
// limit, in the median of the rounds, or in the lower bound of its interval.
type promise struct {
	text    string
	who     string // of whom it is said; empty: ours
	than    string // with whom it is compared; empty: the baseline
	limit   float64
	atLeast bool // else at most
	bound   bool // the interval's lower bound counts, not the median
	of      func(than, who figures) []float64
	format  func(float64) string
}

// ours is the name of the contender that promises are made for.
const ours = "pooldriver"

// atMost promises a ratio of our time to the baseline's.
func atMost(limit float64) promise {
	return promise{text: "time ≤ " + times(limit), limit: limit, format: closely,
		of: func(than, who figures) []float64 { return pairwise(than[timeMetric], who[timeMetric], ratio) }}
}

// faster promises a speed, compared with another contender's.
func faster(than string, limit float64) promise {
	return promise{text: "speed ≥ " + times(limit) + " " + than, than: than, limit: limit, atLeast: true, format: closely,
		of: func(than, who figures) []float64 { return pairwise(than[timeMetric], who[timeMetric], speed) }}
}

// surely promises a speed that the whole interval keeps.
func surely(than string, limit float64) promise {
	p := faster(than, limit)
	p.text = "lower bound of speed ≥ " + times(limit) + " " + than
	p.bound = true
	return p
}

// by says who promises, where it is not ours.
func (p promise) by(who string) promise {
	p.who = who
	return p
}

// to compares it with another contender than the baseline.
func (p promise) to(than string) promise {
	p.than = than
	p.text += " " + than
	return p
}

// asPrepared goes with what is promised to plain sql.DB, where the rest is the machine's:
// a program that prepares its statements by hand has what keeping them can give. Where
// those promises come from that was 2.3 times on MariaDB and 1.9 on SQLite, and 2.1 and
// 1.7 are 0.9 of that.
var asPrepared = faster(preparedName, 0.9)

// ofQueries are promises made of a single query with a parameter, whatever its
// context.
func ofQueries(promises ...promise) map[string][]promise {
	return map[string][]promise{queryName: promises, endlessName: promises}
}

// better promises a ratio of one of our own metrics to the baseline's.
func better(m metric, limit float64) promise {
	p := promise{text: m.title + " ≤ " + times(limit), limit: limit, atLeast: m.compare == more, format: closely,
		of: func(than, who figures) []float64 { return pairwise(than[m.unit], who[m.unit], ratio) }}
	if p.atLeast {
		p.text = m.title + " ≥ " + times(limit)
	}
	return p
}

// extra promises that we take no more time than the baseline and d.
func extra(d time.Duration) promise {
	return promise{text: "time ≤ +" + nanos(float64(d)), limit: float64(d), format: nanos,
		of: func(than, who figures) []float64 { return pairwise(than[timeMetric], who[timeMetric], difference) }}
}

// extraAllocs promises no more allocations than the baseline's and n.
func extraAllocs(n int) promise {
	return promise{text: fmt.Sprintf("≤ +%d allocations", n), limit: float64(n), format: whole,
		of: func(than, who figures) []float64 { return pairwise(than[allocsMetric], who[allocsMetric], difference) }}
}

// allocs promises a number of allocations.
func allocs(n int) promise {
	return promise{text: fmt.Sprintf("≤ %d allocations", n), limit: float64(n), format: whole,
		of: func(_, who figures) []float64 { return who[allocsMetric] }}
}

// within promises a limit for one of our own metrics.
func within(m metric, limit float64) promise {
	return promise{text: m.title + " ≤ " + m.format(limit), limit: limit, format: m.format,
		of: func(_, who figures) []float64 { return who[m.unit] }}
}

func (p promise) contender() string {
	if p.who == "" {
		return ours
	}
	return p.who
}

// verdict is what became of a promise.
type verdict struct {
	wanted, seen, word string
}

const unmeasured = "not measured"

func (p promise) judge(o outcome) verdict {
	than := p.than
	if than == "" && len(o.contenders) > 0 {
		than = o.contenders[0].name
	}
	who, base := o.named(p.contender()), o.named(than)
	if who < 0 || base < 0 || o.failed[who] != nil || o.failed[base] != nil {
		return verdict{p.text, "–", unmeasured}
	}
	v := p.of(o.figures[base], o.figures[who])
	value, seen := median(v), p.format(median(v))
	low, high := interval(v)
	if p.bound {
		value = low
		seen += ", interval " + span(low, high, p.format)
	}
	switch {
	case math.IsInf(value, 0):
		return verdict{p.text, seen, "unknown: too few rounds"}
	case p.atLeast && value >= p.limit, !p.atLeast && value <= p.limit:
		return verdict{p.text, seen, "met"}
	}
	return verdict{p.text, seen, "**missed**"} // no number is missed, too
}

// named returns the place of a contender, or -1.
func (o outcome) named(name string) int {
	return slices.IndexFunc(o.contenders, func(c contender) bool { return c.name == name })
}

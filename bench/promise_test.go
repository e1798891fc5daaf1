package main

import "testing"

func TestVerdicts(t *testing.T) {
	six := func(v float64) []float64 { return []float64{v, v, v, v, v, v} }
	for _, test := range []struct {
		name       string
		base, ours []float64 // times
		promise    promise
		want       string
	}{
		{"as fast as promised", six(210), six(100), faster(plainName, 2.1), "met"},
		{"slower than promised", six(209), six(100), faster(plainName, 2.1), "**missed**"},
		{"the median counts", []float64{100, 100, 300}, []float64{100, 100, 100}, faster(plainName, 1), "met"},
		{"the bound counts", []float64{90, 100, 100, 100, 100, 100}, six(100), surely(plainName, 0.97), "**missed**"},
		{"a bound that is kept", []float64{97, 100, 100, 100, 100, 100}, six(100), surely(plainName, 0.97), "met"},
		{"too few rounds for a bound", six(100)[:5], six(100)[:5], surely(plainName, 0.97), "unknown: too few rounds"},
		{"no more than allowed", six(100), six(35), atMost(0.35), "met"},
		{"more than allowed", six(100), six(36), atMost(0.35), "**missed**"},
		{"the other did not compete", six(100), six(100), faster("absent", 1), unmeasured},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := outcome{
				contest: contest{contenders: []contender{{name: plainName}, {name: ours}}},
				figures: []figures{{timeMetric: test.base}, {timeMetric: test.ours}},
				failed:  make([]error, 2),
			}
			if got := test.promise.judge(o).word; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

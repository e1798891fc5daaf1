package report

import (
	"sync"
	"time"
)

const (
	// mostLabels is how many labels are counted by themselves.
	mostLabels = 32
	// usualOver is over how many quiet seconds the usual rate is a mean, and leastQuiet how many must be known.
	usualOver, leastQuiet = 300, 10
	// smooth is the weight of the last second in the present rate.
	smooth = 0.3
	// grows is how many times the usual rate has grown, and growsBy by how much it has to grow, per second. It has grown until it is
	// below shrinks times the usual rate again.
	grows, shrinks, growsBy = 3, 2, 2
)

// arrivals counts by label, and compares the present rate of each label with the usual one.
type arrivals struct {
	tally

	mu    sync.Mutex // protects following fields
	quiet int        // how many seconds without trouble are known
	rates map[string]*rate
	at    time.Time // the end of the last second
}

type rate struct {
	counted       uint64 // until the last second
	lately, usual float64
	since         time.Time
}

// Arrival is what is known of one label.
type Arrival struct {
	Label string
	Count uint64
	// Lately and Usual are per second. Usual is of seconds without trouble; below 0: too few of them are known.
	Lately, Usual float64
	// Since is when Lately has grown to more than Usual explains; zero: it has not.
	Since time.Time
}

// Arrived counts a statement with a label, which asks for a connection.
func (r *Report) Arrived(label string) { r.arrivals.add(label, mostLabels) }

// EndSecond ends a second, which took so long. quiet: nothing was wrong in it.
func (r *Report) EndSecond(now time.Time, took time.Duration, quiet bool) {
	a := &r.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	idle := now.Sub(a.at) > 2*took // what came before that is not lately
	if a.at = now; quiet {
		a.quiet = min(a.quiet+1, usualOver)
	}
	a.each(func(label string, n uint64) {
		one := a.rates[label]
		if one == nil {
			if one = new(rate); a.rates == nil {
				a.rates = map[string]*rate{}
			}
			a.rates[label] = one
		}
		perSecond := float64(n-one.counted) / took.Seconds()
		if one.counted = n; idle {
			one.lately = 0
		}
		one.lately += smooth * (perSecond - one.lately)
		if quiet {
			one.usual += (perSecond - one.usual) / float64(a.quiet)
		}
		switch {
		case one.lately < shrinks*one.usual || one.lately < one.usual+1 || a.quiet < leastQuiet:
			one.since = time.Time{}
		case one.since.IsZero() && one.lately >= grows*one.usual && one.lately >= one.usual+growsBy:
			one.since = now
		}
	})
}

// Arrivals returns what is known of each label.
func (r *Report) Arrivals() (all []Arrival) {
	a := &r.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	a.each(func(label string, n uint64) {
		one := Arrival{Label: label, Count: n, Usual: -1}
		if known := a.rates[label]; known != nil {
			if one.Lately, one.Since = known.lately, known.since; a.quiet >= leastQuiet {
				one.Usual = known.usual
			}
		}
		all = append(all, one)
	})
	return all
}

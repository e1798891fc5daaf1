package sizing

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Slice is one measurement: a number of connections, each of which ran statements one after the other.
type Slice struct {
	Rate   float64 // statements per second
	P99    time.Duration
	Errors int
	Error  string // one of them
}

// Point is one number of connections. Rate and P99 are medians of all rounds.
type Point struct {
	Size   int           `json:"size"`
	Rate   float64       `json:"rate"` // statements per second
	Low    float64       `json:"low"`  // where the median lies in 95 of 100 such measurements
	High   float64       `json:"high"`
	P99    time.Duration `json:"p99"` // of a statement's time, in nanoseconds
	Errors int           `json:"errors,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Noise is half of the interval from Low to High, as a part of the rate.
func (p *Point) Noise() float64 {
	if p.Rate == 0 {
		return 0
	}
	return (p.High - p.Low) / 2 / p.Rate
}

// Curve is what was measured.
type Curve struct {
	Points []Point `json:"points"`
	// Best is the size with the most statements per second, and Advice the smallest size with nearly as
	// many. 0: every size had errors.
	Best   int `json:"best"`
	Advice int `json:"advice"`
	// Rounds is how often each size was measured. 0: the time was too short.
	Rounds     int    `json:"rounds"`
	Statements int    `json:"statements"`             // of the mix, each of which is run
	LeftOut    int    `json:"left_out,omitempty"`     // of the mix, that would write or fail
	WhyLeftOut string `json:"why_left_out,omitempty"` // the error of one of them
}

// NearlyBest is the part of the best rate that is enough.
const NearlyBest = 0.95

// curveOf makes the curve. Each round has a slice of every size. Rates are compared within their round: what
// else the machine does at the time, for seconds or minutes, makes all of the round slower.
func curveOf(sizes []int, rounds [][]Slice) Curve {
	c := Curve{Rounds: len(rounds)}
	if len(rounds) == 0 {
		return c
	}
	var means []float64
	for _, round := range rounds {
		sum := 0.0
		for _, s := range round {
			sum += s.Rate
		}
		means = append(means, sum/float64(len(round)))
	}
	typical := median(means)
	for i, size := range sizes {
		p := Point{Size: size}
		var rates []float64
		var times []time.Duration
		for n, round := range rounds {
			if means[n] > 0 {
				rates = append(rates, round[i].Rate/means[n]*typical)
			}
			times = append(times, round[i].P99)
			if p.Errors += round[i].Errors; round[i].Error != "" {
				p.Error = round[i].Error
			}
		}
		p.Low, p.Rate, p.High = interval(rates)
		slices.Sort(times)
		p.P99 = times[len(times)/2]
		c.Points = append(c.Points, p)
	}
	c.advise()
	return c
}

// advise finds the best size, and the smallest that is nearly as good.
func (c *Curve) advise() {
	best := Point{}
	for _, p := range c.Points {
		if p.Errors == 0 && p.Rate > best.Rate {
			best = p
		}
	}
	c.Best = best.Size
	for _, p := range c.Points { // in the order of their sizes
		if p.Errors == 0 && p.Rate > 0 && p.Rate >= NearlyBest*best.Rate {
			c.Advice = p.Size
			return
		}
	}
}

func median(values []float64) float64 {
	_, m, _ := interval(values)
	return m
}

// interval returns the median, and its interval of 95 %, by the ranks of the values: of few values, all lie in
// it.
func interval(values []float64) (low, mid, high float64) {
	n := len(values)
	if n == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid = sorted[n/2]
	if n%2 == 0 {
		mid = (sorted[n/2-1] + mid) / 2
	}
	ranks := 0.98 * math.Sqrt(float64(n))
	first := max(0, int(math.Floor(float64(n)/2-ranks)))
	return sorted[first], mid, sorted[n-1-first]
}

// Point returns the point of a size.
func (c *Curve) Point(size int) Point {
	i := slices.IndexFunc(c.Points, func(p Point) bool { return p.Size == size })
	if i < 0 {
		return Point{}
	}
	return c.Points[i]
}

// Rises reports whether the largest size was the advice: more connections may be better still.
func (c *Curve) Rises() bool { return len(c.Points) > 1 && c.Advice == c.Points[len(c.Points)-1].Size }

// Noisy reports whether the noise is larger than the difference that counts.
func (c *Curve) Noisy() bool {
	best, advice := c.Point(c.Best), c.Point(c.Advice)
	return max(best.Noise(), advice.Noise()) > 1-NearlyBest
}

// String says what the curve advises.
func (c *Curve) String() string {
	if c.Advice == 0 {
		return "every size had errors"
	}
	best, advice := c.Point(c.Best), c.Point(c.Advice)
	text := fmt.Sprintf("the most was %s statements per second (±%s) with %d connections", thousands(best.Rate), percent(best.Noise()), c.Best)
	if c.Advice == c.Best {
		return text + ", and no smaller size comes within 5 % of it"
	}
	return text + fmt.Sprintf("; %d give %s of it: %s (±%s)", c.Advice, percent(advice.Rate/best.Rate), thousands(advice.Rate), percent(advice.Noise()))
}

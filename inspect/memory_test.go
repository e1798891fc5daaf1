package inspect

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// borders are constant loads at the border of two rows. noise is between 0 and 1, another one at each look.
var borders = map[string]func(p *Pool, noise float64){
	"small, and for a moment nobody waits": func(p *Pool, noise float64) {
		p.Window.WaitP99 = 250 * time.Millisecond
		if noise < 0.3 {
			p.Stats.Pool.Waiting, p.Waiters = 0, nil
		}
	},
	"waits of a tenth of a second": func(p *Pool, noise float64) {
		p.Waiters[0].Since = p.At.Add(-time.Duration(70+60*noise) * time.Millisecond)
	},
	"a statement that takes three times as long": func(p *Pool, noise float64) {
		p.Statements = []pooldriver.StatementTime{{Statement: "SELECT cart", Usual: 10 * time.Millisecond, Lately: time.Duration(25+10*noise) * time.Millisecond}}
	},
	"half of the time for nothing": func(p *Pool, noise float64) {
		p.Window.Ended, p.Window.Held, p.Window.IdlePinned = 1000, 100*time.Second, time.Duration(45+10*noise)*time.Second
	},
	"statements of a second": func(p *Pool, noise float64) {
		p.Window.MeanHold = time.Duration(900+200*noise) * time.Millisecond
	},
	"three connections lost in ten seconds": func(p *Pool, noise float64) {
		p.Stats.Pool.Waiting, p.Waiters = 0, nil
		p.Window.Lost = uint64(2 + 2*noise)
	},
	"a processor that is short": func(p *Pool, noise float64) { p.Window.Late = time.Duration(200+100*noise) * time.Millisecond },
	"an overload, now and then": func(p *Pool, noise float64) { p.Stats.Pool.Overloaded = noise < 0.5 },
	"half of the connections are held for nothing": func(p *Pool, noise float64) {
		if noise < 0.5 {
			p.Holders[0] = pooldriver.Holder{Idle: 200 * time.Millisecond, Since: p.At.Add(-time.Second)}
			p.Holders[1] = p.Holders[0]
		}
	},
}

// noises are the ways in which a load that is constant looks otherwise from one second to the next.
var noises = map[string]func(random *rand.Rand, second int) float64{
	"evenly":       func(random *rand.Rand, _ int) float64 { return random.Float64() },
	"mostly low":   func(random *rand.Rand, _ int) float64 { return random.Float64() * random.Float64() * random.Float64() },
	"mostly high":  func(random *rand.Rand, _ int) float64 { return 1 - random.Float64()*random.Float64()*random.Float64() },
	"in slow ways": func(_ *rand.Rand, second int) float64 { return float64(second / 12 % 2) },
}

func atBorder(now time.Time, border func(*Pool, float64), noise float64) Pool {
	usual := pooldriver.Holder{Running: true, Since: now, Statement: "SELECT cart", Usual: 10 * time.Millisecond}
	p := Pool{At: now, Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{usual, usual}, Window: Window{Known: window},
		Waiters: []pooldriver.Waiter{{Since: now.Add(-time.Second)}}}
	border(&p, noise)
	return p
}

// TestNoRowChangesMoreThanTwiceAMinuteAtConstantLoad: at each border, looked at once a second for half an hour.
func TestNoRowChangesMoreThanTwiceAMinuteAtConstantLoad(t *testing.T) {
	t.Parallel()
	for name, border := range borders {
		for way, noise := range noises {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(1, 2))
				var m memory
				raw, said := changes{}, changes{}
				for second := range 1800 {
					now := time.Unix(int64(second), 0)
					p := atBorder(now, border, noise(random, second))
					v, _ := Judge(p)
					raw.add(now, v.Rule)
					v, _ = judged(p, &m)
					said.add(now, v.Rule)
				}
				require.Greater(t, raw.most, 2, "it is at a border")
				require.LessOrEqual(t, said.most, 2)
			})
		}
	}
}

// changes counts changes of the row.
type changes struct {
	row  string
	at   []time.Time
	most int // in a minute
}

func (c *changes) add(now time.Time, row string) {
	if c.row != "" && row != c.row {
		c.at = append(c.at, now)
	}
	c.row = row
	for len(c.at) > 0 && now.Sub(c.at[0]) >= time.Minute {
		c.at = c.at[1:]
	}
	c.most = max(c.most, len(c.at))
}

func TestARowThatWasLeftComesBackLaterAndWhatIsSureAtOnce(t *testing.T) {
	t.Parallel()
	var m memory
	second := 0
	look := func(v Verdict) Verdict {
		second++
		return m.steady(time.Unix(int64(second), 0), v)
	}
	well, small := Verdict{Rule: "well", Level: calm, Sentence: "Well."}, Verdict{Rule: "small", Level: busy, Sentence: "Small."}
	lock, slower := Verdict{Rule: "lock", Level: bad, Sentence: "A lock."}, Verdict{Rule: "slower than usual", Level: bad, Sentence: "Slow."}
	repeat := func(n int, v Verdict) (shown Verdict) {
		for range n {
			shown = look(v)
		}
		return shown
	}
	require.Equal(t, well, look(well))
	require.Equal(t, small, look(small), "what is worse is said at once")
	require.Equal(t, lock, look(lock))
	require.Equal(t, small, look(small), "and what is sure is left at once")
	require.Equal(t, small, look(well))
	require.Equal(t, "2s ago: Small.", look(well).Sentence)
	require.Equal(t, small, look(small))
	require.Equal(t, "50s ago: Small.", repeat(50, well).Sentence)
	require.Equal(t, well, repeat(9, well), "a minute after it was left")
	require.Equal(t, "9s ago: Well.", repeat(9, small).Sentence)
	require.Equal(t, small, repeat(2, small), "it is worse, and is found for ten seconds")
	require.Equal(t, slower, look(slower))
	require.Equal(t, slower, look(Verdict{Rule: "waited", Level: busy}), "what is better has to last")
	require.Equal(t, "waited", repeat(2, Verdict{Rule: "waited", Level: busy}).Rule)
	second += 20
	require.Equal(t, well, look(well), "nobody has looked")
}

func TestWhoeverLooksAtAConnectorRemembersTheSame(t *testing.T) {
	c := pooldriver.New("postgres://app@db.invalid/shop")
	require.Same(t, memoryOf(c, true), memoryOf(c, true))
	require.NotSame(t, memoryOf(c, true), memoryOf(c, false))
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		runtime.GC()
		gone := true
		memories.Range(func(key, _ any) bool { gone = gone && key.(remembered).connector.Value() != nil; return true })
		return gone
	}, 10*time.Second, 10*time.Millisecond, "the memory ends with its Connector")
}

package inspect

import (
	"fmt"
	"math"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

func rendered(t *testing.T, pools ...Pool) string {
	w := httptest.NewRecorder()
	writePage(w, Snapshot{At: time.Now(), Pools: pools}, true)
	text := w.Body.String()
	require.True(t, strings.HasSuffix(strings.TrimSpace(text), "</html>"), "the template has failed: %s", text[max(0, len(text)-300):])
	return text
}

// stats are those of a pool with lent connections of max.
func stats(lent, limit, waiting int) pooldriver.Stats {
	return pooldriver.Stats{Pool: pool.Stats{Max: limit, Count: lent, Active: lent, Lent: lent, Waiting: waiting}}
}

func TestWhatIsHeldForNothingComesFirst(t *testing.T) {
	now := time.Now()
	text := rendered(t, Pool{Stats: stats(3, 4, 0), Holders: []pooldriver.Holder{
		{Conn: 1, Label: "old and busy", Since: now.Add(-time.Hour), Running: true, Pin: pooldriver.PinTransaction},
		{Conn: 2, Label: "a little", Since: now.Add(-time.Second), Idle: time.Millisecond, Pin: pooldriver.PinRows},
		{Conn: 3, Label: "forgotten", Since: now.Add(-time.Minute), Idle: 59 * time.Second, Pin: pooldriver.PinTransaction},
	}})
	table := text[strings.Index(text, `class="holders"`):]
	forgotten, little, busy := strings.Index(table, "forgotten"), strings.Index(table, "a little"), strings.Index(table, "old and busy")
	require.Greater(t, forgotten, 0)
	require.Less(t, forgotten, little)
	require.Less(t, little, busy)
}

// TestTheMainThingsAreAboveTheTables: the verdict, the one before it, the last minute, the sums.
func TestTheMainThingsAreAboveTheTables(t *testing.T) {
	now := time.Now()
	text := rendered(t, Pool{
		Stats:   stats(4, 4, 2),
		Verdict: Verdict{Level: "busy", Sentence: "Some wait."},
		Earlier: &Earlier{Verdict{Level: "bad", Sentence: "All fail."}, 7 * time.Second},
		Lines:   []Point{{At: now.Add(-time.Second)}, {At: now, InUse: 4, Waiting: 2}},
		Labels:  []LabelUse{{Label: "GET /report", Holds: 4, LongestHold: 5 * time.Second, Statement: "SELECT sales"}},
		DBs:     []DB{{MaxOpen: 2, InUse: 2, WaitCount: 18}},
		Holders: []pooldriver.Holder{{Running: true, RunningFor: 3 * time.Second, Since: now}},
	})
	at := 0
	for _, part := range []string{
		`class="pool busy"`, `<p class="verdict">Some wait.</p>`, `<p class="earlier">7s ago: All fail.</p>`, "<polyline points=", "2 of 2 (SetMaxOpenConns)",
		"18 callers have waited", `class="labels"`, "GET /report", "4 of 4", "SELECT sales", `class="holders"`, "runs for 3s",
	} {
		i := strings.Index(text[at:], part)
		require.GreaterOrEqual(t, i, 0, part)
		at += i
	}
}

// TestTheWorstPoolComesFirst: and its level is in the title, where nobody has to look at the page.
func TestTheWorstPoolComesFirst(t *testing.T) {
	w := httptest.NewRecorder()
	writePage(w, Snapshot{Pools: []Pool{
		{Name: "a", Verdict: Verdict{Level: "calm", Sentence: "Well."}}, {Name: "b", Verdict: Verdict{Rule: "lock", Level: "bad", Sentence: "Five wait.", Do: "Commit."}},
	}}, false)
	text := w.Body.String()
	require.Contains(t, text, "<title>bad: Connection pools</title>")
	require.Contains(t, text, `<li class="bad"><a id="to-1" href="#pool-1">b</a> bad: Five wait.</li>`)
	require.Contains(t, text, `id="pool-1" data-rule="lock bad"`)
	require.Less(t, strings.Index(text, `id="pool-1"`), strings.Index(text, `id="pool-0"`))
	require.Contains(t, text, "Five wait. <small>Commit.</small>")
	require.NotContains(t, rendered(t, Pool{}), `<ul class="pools">`)
}

func TestThePageShowsWhoIsInPipelines(t *testing.T) {
	now := time.Now()
	p := Pool{
		Stats:   stats(1, 1, 1),
		Recent:  Recent{For: time.Minute, Acquired: 100, Pipelined: 12},
		Holders: []pooldriver.Holder{{Conn: 1, Since: now, Running: true, Statements: 3, Following: 2}},
		Waiters: []pooldriver.Waiter{{Position: 1, Label: "a", Since: now}, {Follows: true, Label: "a", Since: now}, {Follows: true, Label: "b", Since: now.Add(-time.Hour)}},
	}
	require.NotContains(t, rendered(t, p), "<dt>pipelined</dt>")
	p.Stats.Pipelined = 1200
	text := rendered(t, p)
	require.Contains(t, text, "<dt>pipelined</dt><dd>12<small> of 100, last 1m0s</small></dd>")
	require.Contains(t, text, "3 so far, 2 behind it in its pipeline")
	require.Contains(t, text, "2<small> 1 in pipelines</small>")
	require.Contains(t, text, "1<small> 1 in pipelines</small>")
	require.Less(t, viewOf(0, p).Longest, time.Hour, "who follows does not wait for a connection")
	p.Waiters = p.Waiters[1:]
	require.Zero(t, viewOf(0, p).Longest)
	require.Zero(t, longestWait(p))
}

func TestEachConnectionIsDrawn(t *testing.T) {
	s := stats(3, 10, 50)
	s.Pool.Count, s.Pool.Idle, s.Pool.Active, s.Pool.Creating = 8, 2, 6, 1
	text := rendered(t, Pool{Stats: s, Holders: []pooldriver.Holder{{Running: true}, {Idle: time.Second}, {Idle: time.Second}}})
	for class, n := range map[string]int{"running": 1, "pinned": 2, "creating": 1, "busy": 2, "idle": 2, "free": 2} {
		require.Equal(t, n, strings.Count(text, `<li class="`+class+`"`), class)
	}
	require.Equal(t, 40, strings.Count(text, "<i></i>"))
	require.Contains(t, text, "+ 10</span>")
	require.Contains(t, rendered(t, Pool{Stats: stats(500, 1000, 0)}), "<meter", "more than 200 are not drawn one by one")
}

func TestTenThousandWaitersAreCutAndCounted(t *testing.T) {
	waiters := make([]pooldriver.Waiter, maxRows)
	for i := range waiters {
		waiters[i] = pooldriver.Waiter{Position: i + 1, Since: time.Now(), Label: fmt.Sprintf("label %d.", i+1)}
	}
	text := rendered(t, Pool{Stats: stats(4, 4, 10_000), Waiters: waiters})
	require.Contains(t, text, "label 100.")
	require.NotContains(t, text, "label 101.")
	require.Contains(t, text, "and 900 more")
	require.Less(t, len(text), 100_000)
}

func TestNothingOfTheProgramIsMarkup(t *testing.T) {
	evil := `"><script>alert(1)</script>`
	frames := []pooldriver.Frame{{Func: evil, File: evil, Line: 1}}
	text := rendered(t, Pool{
		Name:      evil,
		Stats:     pooldriver.Stats{Pool: pool.Stats{Max: 1, Lent: 1}, Closed: map[pooldriver.CloseReason]uint64{pooldriver.CloseReason(evil): 1}},
		Holders:   []pooldriver.Holder{{Label: evil, Statement: evil, Task: evil, Host: evil, Pin: pooldriver.Pin(evil), TakenAt: frames, StatementAt: frames}},
		Waiters:   []pooldriver.Waiter{{Label: evil, Task: evil}},
		Labels:    []LabelUse{{Label: evil, Statement: evil, Holds: 1}},
		Verdict:   Verdict{Level: "bad", Sentence: evil},
		Earlier:   &Earlier{Verdict{Level: "bad", Sentence: evil}, time.Second},
		Tasks:     []pooldriver.TaskState{{Name: evil, Label: evil}},
		CallSites: []pooldriver.CallSite{{Stack: frames}},
	})
	require.NotContains(t, text, "<script>alert")
	require.Equal(t, 1, strings.Count(text, "<script>"), "ours")
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "0s",
		80:                              "80ns",
		1_234:                           "1.23µs",
		12_345:                          "12.3µs",
		123_456:                         "123µs",
		1_234_567:                       "1.23ms",
		3_200 * time.Millisecond:        "3.2s",
		59_960 * time.Millisecond:       "1m0s",
		61 * time.Second:                "1m1s",
		90*time.Minute + 29*time.Second: "1h30m0s",
	} {
		require.Equal(t, want, Brief(d))
	}
}

// TestTextsCanBeRead: the contrast that WCAG 2.2 asks for, 4.5 to 1.
func TestTextsCanBeRead(t *testing.T) {
	colors := map[string][2]string{}
	for _, m := range regexp.MustCompile(`--(\w+): light-dark\(#(\w{6}), #(\w{6})\)`).FindAllStringSubmatch(style, -1) {
		colors[m[1]] = [2]string{m[2], m[3]}
	}
	luminance := func(color string) (l float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
			require.NoError(t, err)
			c := float64(n) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			l += weight * c
		}
		return l
	}
	for _, text := range regexp.MustCompile(`[^-]color: var\(--(\w+)\)`).FindAllStringSubmatch(style, -1) {
		for i, scheme := range []string{"light", "dark"} {
			for _, back := range []string{"back", "card"} {
				a, b := luminance(colors[text[1]][i]), luminance(colors[back][i])
				require.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 4.5, "%s on %s, %s", text[1], back, scheme)
			}
		}
	}
}

func TestThePageShowsTheHighestUseOfTheLastHour(t *testing.T) {
	s := stats(1, 4, 0)
	require.NotContains(t, rendered(t, Pool{Stats: s}), "in the last hour")
	s.Peak = 3
	require.Contains(t, rendered(t, Pool{Stats: s}), "in the last hour 3 at most</small>")
}

func TestThePageShowsAnOverload(t *testing.T) {
	s := stats(4, 4, 3)
	require.NotContains(t, rendered(t, Pool{Stats: s}), "<dt>overload</dt>")
	s.Pool.Overloaded, s.Pool.Shed = true, 17
	require.Contains(t, rendered(t, Pool{Stats: s}), `<div class="alert"><dt>overload</dt><dd>now<small> 17 refused</small>`)
}

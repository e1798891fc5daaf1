package inspect

import (
	"fmt"
	"net/http/httptest"
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
	require.Contains(t, text, "and 9900 more")
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

package usage

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/pinning"
)

// timesOf is a Times whose outline replaces numbers.
func timesOf() *Times {
	numbers := regexp.MustCompile(`\d+`)
	return &Times{Outline: func(text *string) string { return numbers.ReplaceAllString(*text, "?") }}
}

// ran adds n executions of text.
func (t *Times) ran(n int, text string, took time.Duration, now int64) {
	for range n {
		t.add([]sample{{text: &text, took: took}}, now)
	}
}

func TestAStatementHasAUsualTimeAndOneOfLate(t *testing.T) {
	all := timesOf()
	all.Second(1, true)
	require.Zero(t, all.Usual("SELECT ?"), "nothing is known")
	all.ran(90, "SELECT 1", 2*time.Millisecond, 1)
	all.ran(10, "SELECT 2", time.Second, 1)
	all.ran(5, "SELECT 3", 2*time.Millisecond, 1)
	one := all.outline["SELECT ?"]
	require.Equal(t, 2500*time.Microsecond, one.Usual(), "nine of ten, as a bucket's bound")
	require.Equal(t, 2*time.Millisecond, one.Lately(), "five of nine")
	all.Second(2, false)
	all.ran(1000, "SELECT 4", time.Second, 2)
	require.Equal(t, time.Second, one.Lately())
	require.Equal(t, 2500*time.Microsecond, one.Usual(), "what runs while something is wrong does not count")
	require.EqualValues(t, 1105, one.Runs())
}

// TestWhatIsUsualIsOlderThanAnIncident: an incident in which nothing waits does not become its own measure.
func TestWhatIsUsualIsOlderThanAnIncident(t *testing.T) {
	all := timesOf()
	all.Second(1, true)
	all.ran(fewRuns, "COMMIT", 40*time.Millisecond, 1)
	all.Second(1+agesAfter, true)
	all.ran(1000, "COMMIT", time.Second, 2)
	require.Equal(t, 50*time.Millisecond, all.Usual("COMMIT"))
	all.Second(1+2*agesAfter, true)
	require.Equal(t, time.Second, all.Usual("COMMIT"), "what has lasted for minutes is usual")
}

// TestAnIncidentOfAYoungProgramIsNotItsMeasure: what has run for a few seconds is the measure of the minutes after them.
func TestAnIncidentOfAYoungProgramIsNotItsMeasure(t *testing.T) {
	all := timesOf()
	all.Second(1, true)
	all.ran(10*fewRuns, "COMMIT", 2*time.Millisecond, 1)
	all.Second(2, true)
	all.ran(lately, "COMMIT", time.Second, 2)
	all.Second(3, true)
	all.ran(1000, "COMMIT", time.Second, 3)
	require.Equal(t, 2500*time.Microsecond, all.Usual("COMMIT"))
	all.Second(4, true)
	all.Second(1+agesAfter, true)
	require.Equal(t, time.Second, all.Usual("COMMIT"), "what has lasted for minutes is usual")
}

// TestWhatFailsIsNotUsual: a statement may wait for a lock until a timeout ends it, again and again.
func TestWhatFailsIsNotUsual(t *testing.T) {
	metered(t, 1, func(t *testing.T, m *Meter) {
		times, text := &m.env.Times, "UPDATE stock"
		times.Outline = func(text *string) string { return *text }
		times.Second(1, true)
		run := func(took time.Duration, fails bool) {
			for range fewRuns {
				m.Begin(nil, &text, 0, false)
				time.Sleep(took)
				if fails {
					m.Failed()
				}
				m.EndOperation(pinning.Conn)
				m.End()
				time.Sleep(time.Second) // what has ended is told
			}
		}
		run(time.Millisecond, false)
		run(time.Minute, true)
		require.Less(t, times.Usual(text), time.Second)
		require.Greater(t, times.outline[text].Lately(), time.Second)
		run(time.Minute, false)
		run(time.Minute, false)
		require.Greater(t, times.Usual(text), time.Second, "a failure counts for one execution")
	})
}

func TestStatementsThatRunLeastMakeRoomAndLiteralsAreForgotten(t *testing.T) {
	all := timesOf()
	all.Second(1, true)
	all.ran(30, "SELECT often", time.Millisecond, 1)
	for i := range 3 * mostTexts {
		all.ran(1, "SELECT "+strconv.Itoa(i), time.Millisecond, 1)
	}
	require.LessOrEqual(t, len(all.byText), mostTexts)
	require.Len(t, all.outline, 2)
	for i := range 3 * mostOutlines {
		all.ran(1, "SELECT "+string(rune('一'+i)), time.Millisecond, 1)
	}
	require.LessOrEqual(t, len(all.outline), mostOutlines)
	require.NotZero(t, all.Usual("SELECT often"))
}

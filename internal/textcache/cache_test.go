package textcache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

func TestATextIsKnownAtItsSecondUseAlsoBesideOthersInTurns(t *testing.T) {
	var m Cache
	d := generic.Dialect{}
	var queries []string
	for i := range 100 { // alike but for two letters in the middle
		queries = append(queries, fmt.Sprintf("SELECT a FROM t%02d WHERE a = ?", i))
	}
	for i, q := range queries {
		text, again := m.Of(d, q)
		require.False(t, again, i)
		require.Equal(t, q, text.Query)
	}
	unknown := 0
	for _, q := range queries {
		if _, again := m.Of(d, strings.Clone(q)); !again {
			unknown++
		}
	}
	require.Less(t, unknown, 10, "few of 100 share a place with four others")
	for range 2 {
		_, again := m.Of(d, strings.Repeat("x", longest+1))
		require.False(t, again)
	}
	_, again := m.Of(d, "")
	require.False(t, again)
	_, again = m.Of(d, "")
	require.True(t, again)
	first, _ := m.Of(d, "SET a = 1")
	second, again := m.Of(d, "SET a = 1")
	require.True(t, again)
	require.Same(t, first, second)
	require.NotEqual(t, dialects.Clean, first.Effect)
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Of(d, queries[0]) }))
}

func TestATextIsShortOnlyAfterTheServerHasSaidThatItOnlyReads(t *testing.T) {
	var text Text
	run := func() (asked bool) {
		told := text.Pace.Asks()
		text.Pace.Ran(time.Millisecond)
		if told != nil {
			told(false)
		}
		return told != nil
	}
	for range aloneFirst {
		text.Pace.Ran(time.Millisecond)
	}
	require.False(t, text.Pace.IsShort(), "nobody has asked")
	for range aloneFirst {
		require.False(t, text.Pace.IsShort())
		require.True(t, run())
	}
	require.True(t, text.Pace.IsShort())
	require.False(t, run(), "it is known")

	var judges Judges
	judges[OnlyReads] = func(string) bool { return true }
	text = Text{}
	require.True(t, text.Is(OnlyReads, &judges))
	text.Pace.Asks()(true)
	require.False(t, text.Is(OnlyReads, &judges))
}

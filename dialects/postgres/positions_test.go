package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionsAreComparedWithinATimeline(t *testing.T) {
	t.Parallel()
	const at = "7345678901234567890/2/1/A0"
	var d dialect
	for replayed, reached := range map[string]bool{
		at:                                 true,
		"7345678901234567890/2/1/A1":       true,
		"7345678901234567890/2/2/0":        true,
		"7345678901234567890/2/1/9F":       false,
		"7345678901234567890/2/0/FFFFFFFF": false,
		"7345678901234567890/1/9/0":        false, // it was not there when the new primary began
		"7345678901234567890/3/9/0":        false,
		"8345678901234567890/2/9/0":        false,
		"":                                 false,
		"7345678901234567890/2//":          false,
	} {
		require.Equal(t, reached, d.Reached(at, replayed), replayed)
	}
	require.False(t, d.Reached("", at))
	require.True(t, d.SameDatabase("7/1/2/0", "7/2/1/0"))
	require.False(t, d.SameDatabase("7/1/2/0", "8/1/2/0"))
	require.False(t, d.SameDatabase("7/1/2/0", "?"))
	for _, no := range []string{"", "?", "7/1/2", "7/1/2/0/0", "7/1/2/g", "x/1/2/0", "7/1/2/100000000", "7/-1/2/0"} {
		require.False(t, d.Valid(no), no)
	}
}

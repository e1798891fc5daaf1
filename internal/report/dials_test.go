package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestAnOutageIsToldAtItsBeginningNowAndThenAndAtItsEnd(t *testing.T) {
	t.Parallel()
	var d Dials
	require.False(t, d.Count(false, at(0)).Tell)
	require.Equal(t, DialsLook{Failed: 1, For: 0, Tell: true}, d.Count(true, at(1)))
	require.Equal(t, DialsLook{Failed: 2, For: 9 * time.Second, Tell: false}, d.Count(true, at(10)))
	require.Equal(t, DialsLook{Failed: 3, For: 10 * time.Second, Tell: true}, d.Count(true, at(11)))
	require.Equal(t, DialsLook{Failed: 3, For: 12 * time.Second, Tell: true}, d.Count(false, at(13)))
	require.False(t, d.Count(false, at(14)).Tell)
}

func TestTheEndOfAnOutageThatWasNotToldIsNotToldEither(t *testing.T) {
	t.Parallel()
	var d Dials
	require.True(t, d.Count(true, at(0)).Tell)
	require.True(t, d.Count(false, at(1)).Tell)
	require.False(t, d.Count(true, at(2)).Tell, "so soon after the last warning")
	require.False(t, d.Count(false, at(3)).Tell)
	require.Equal(t, DialsLook{Failed: 1, Tell: true}, d.Count(true, at(10)))
}

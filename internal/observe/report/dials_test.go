package report

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errNo = errors.New("no route")

var start = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestAnOutageIsToldAtItsBeginningNowAndThenAndAtItsEnd(t *testing.T) {
	t.Parallel()
	var d Dials
	require.False(t, d.Count(nil, at(0)).Tell)
	require.Equal(t, DialsLook{Failed: 1, For: 0, Tell: true}, d.Count(errNo, at(1)))
	require.Equal(t, DialsLook{Failed: 2, For: 9 * time.Second, Tell: false}, d.Count(errNo, at(10)))
	require.Equal(t, DialsLook{Failed: 3, For: 10 * time.Second, Tell: true}, d.Count(errNo, at(11)))
	require.Equal(t, DialsLook{Failed: 3, For: 12 * time.Second, Tell: true}, d.Count(nil, at(13)))
	require.False(t, d.Count(nil, at(14)).Tell)
}

func TestTheEndOfAnOutageThatWasNotToldIsNotToldEither(t *testing.T) {
	t.Parallel()
	var d Dials
	require.True(t, d.Count(errNo, at(0)).Tell)
	require.True(t, d.Count(nil, at(1)).Tell)
	require.False(t, d.Count(errNo, at(2)).Tell, "so soon after the last warning")
	require.False(t, d.Count(nil, at(3)).Tell)
	require.Equal(t, DialsLook{Failed: 1, Tell: true}, d.Count(errNo, at(10)))
}

func TestWhatIsKnownOfDialsThatFail(t *testing.T) {
	t.Parallel()
	var d Dials
	failed, _, _, err := d.Failing(at(0))
	require.Zero(t, failed)
	require.NoError(t, err)
	d.Count(errors.New("other"), at(1))
	d.Count(errNo, at(4))
	failed, lasts, ago, err := d.Failing(at(6))
	require.Equal(t, 2, failed)
	require.Equal(t, []time.Duration{5 * time.Second, 2 * time.Second}, []time.Duration{lasts, ago})
	require.Equal(t, errNo, err)
	d.Count(nil, at(7))
	failed, _, _, err = d.Failing(at(8))
	require.Zero(t, failed)
	require.NoError(t, err)
}

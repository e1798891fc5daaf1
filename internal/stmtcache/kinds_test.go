package stmtcache

import (
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNullTakesTheKindThatFollows(t *testing.T) {
	var s Stmt
	args := func(values ...driver.Value) (named []driver.NamedValue) {
		for i, v := range values {
			named = append(named, driver.NamedValue{Ordinal: i + 1, Value: v})
		}
		return named
	}
	require.True(t, s.Fits(args(nil, "a")))
	require.True(t, s.Fits(args(int64(1), nil)))
	require.True(t, s.Fits(args(nil, []byte("b"))))
	require.False(t, s.Fits(args("1", "a")))
	require.False(t, s.Fits(args(uint64(1), "a")))
	require.False(t, s.Fits(args(int64(1))))
	require.Zero(t, testing.AllocsPerRun(10, func() { s.Fits(nil) }))
}

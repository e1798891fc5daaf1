package stmtcache

import (
	"database/sql/driver"
	"testing"
	"time"

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

// TestWhichArgumentsAreOfOneKind: a statement is executed again with arguments of the same
// kind only.
func TestWhichArgumentsAreOfOneKind(t *testing.T) {
	kinds := map[string][]driver.Value{
		"signed":   {int64(1), int64(-2)},
		"unsigned": {uint64(1), uint64(2)},
		"float":    {1.5, float32(2)},
		"bool":     {true, false},
		"text":     {"a", []byte("b")},
		"time":     {time.Now(), time.Time{}},
		"other":    {struct{}{}, int8(1)},
	}
	args := func(v driver.Value) []driver.NamedValue { return []driver.NamedValue{{Ordinal: 1, Value: v}} }
	for first, values := range kinds {
		for second, others := range kinds {
			t.Run(first+", then "+second, func(t *testing.T) {
				var s Stmt
				require.True(t, s.Fits(args(values[0])))
				require.Equal(t, first == second, s.Fits(args(others[1])))
				require.True(t, s.Fits(args(nil)), "NULL is of every kind")
				require.True(t, s.Fits(args(values[1])), "the first kind stays")
			})
		}
	}
}

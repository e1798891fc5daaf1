package goroutine_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/goroutine"
)

func TestGoroutinesHaveNumbers(t *testing.T) {
	t.Parallel()
	mine := goroutine.Number()
	require.NotZero(t, mine)
	require.Equal(t, mine, goroutine.Number())
	other := make(chan uint64)
	go func() { other <- goroutine.Number() }()
	theirs := <-other
	require.NotZero(t, theirs)
	require.NotEqual(t, mine, theirs)
}

func TestBubblesHaveNames(t *testing.T) {
	t.Parallel()
	require.Empty(t, goroutine.Bubble())
	seen := map[string]bool{}
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			name := goroutine.Bubble()
			require.NotEmpty(t, name)
			require.NotContains(t, name, " ")
			require.False(t, seen[name])
			seen[name] = true
			require.NotZero(t, goroutine.Number())
		})
	}
}

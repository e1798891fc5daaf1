package mergedctx

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// uncomparable is a context that == cannot compare.
type uncomparable struct {
	context.Context
	_ []int
}

func TestIsSame(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2*unsafe.Sizeof(uintptr(0)), unsafe.Sizeof(context.Context(nil)), "an interface value has two words")
	first, second := context.WithValue(t.Context(), key{}, 1), context.WithValue(t.Context(), key{}, 1)
	odd := context.Context(uncomparable{Context: first})
	require.Panics(t, func() { _ = odd == odd }) //nolint:gocritic // it is what IsSame avoids
	all := []context.Context{first, second, odd, context.Background(), context.TODO(), nil}
	for i := range all {
		for j := range all {
			copied := all[j]
			require.Equal(t, i == j, IsSame(&all[i], &copied), "%d %d", i, j)
		}
	}
}

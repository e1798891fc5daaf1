package connpool

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembersAreListedWhileTheyAreReady(t *testing.T) {
	t.Parallel()
	var r registry[string]
	require.Empty(t, r.Ready())
	require.True(t, r.Empty())
	r.Begin()
	require.False(t, r.Empty())
	require.Empty(t, r.Ready())
	r.Add("a")
	r.Begin()
	r.Add("b")
	before := r.Ready()
	r.Remove("a")
	require.Equal(t, []string{"a", "b"}, before, "a list does not change")
	require.Equal(t, []string{"b"}, r.Ready())
	r.End()
	require.False(t, r.Empty())
	r.Remove("b")
	r.End()
	require.True(t, r.Empty())
}

func TestTheLastOneIsToldOfOnceAndOnlyAfterClose(t *testing.T) {
	t.Parallel()
	var r registry[string]
	calls := 0
	r.Begin()
	r.End()
	require.Zero(t, calls)
	r.Begin()
	r.Begin()
	r.Close(func() { calls++ })
	r.End()
	require.Zero(t, calls)
	r.End()
	require.Equal(t, 1, calls)
	r.Close(func() { calls += 100 })
	require.Equal(t, 1, calls)

	var empty registry[string]
	empty.Close(func() { calls++ })
	require.Equal(t, 2, calls)
}

func TestTheLastOneIsToldOfWhenAllEndAtOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		const members = 8
		var r registry[int]
		var calls atomic.Int32
		var all sync.WaitGroup
		for m := range members {
			r.Begin()
			all.Go(func() {
				r.Add(m)
				r.Remove(m)
				r.End()
			})
		}
		for range 2 {
			all.Go(func() { r.Close(func() { calls.Add(1) }) })
		}
		all.Wait()
		require.EqualValues(t, 1, calls.Load())
		require.Empty(t, r.Ready())
	}
}

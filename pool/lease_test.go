package pool

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestZeroLeaseHoldsNothing(t *testing.T) {
	var l Lease[*item]
	require.True(t, l.IsZero())
	require.False(t, l.Valid())
	require.Nil(t, l.Value())
	require.ErrorIs(t, l.Release(), ErrStaleLease)
	require.ErrorIs(t, l.Discard(), ErrStaleLease)
}

func TestLeaseGivenBackTwiceDoesNotHurtTheNextOwner(t *testing.T) {
	for _, again := range []func(Lease[*item]) error{Lease[*item].Release, Lease[*item].Discard} {
		p, s := sell(t, quiet(1))
		first := must(t, p)
		copied := first
		require.True(t, copied.Valid())
		require.NoError(t, first.Release())
		require.False(t, copied.Valid())
		require.ErrorIs(t, again(copied), ErrStaleLease, "while it is idle")

		second := must(t, p)
		require.Equal(t, first.Value(), second.Value())
		require.ErrorIs(t, again(first), ErrStaleLease, "while somebody else has it")
		require.True(t, second.Valid())
		_, ok := p.TryAcquire()
		require.False(t, ok)
		require.NoError(t, second.Discard())
		require.ErrorIs(t, again(second), ErrStaleLease, "when it is destroyed")
		require.Equal(t, 1, s.madeSoFar())
	}
}

func TestLeaseGivenBackByManyAtOnceIsGivenBackOnce(t *testing.T) {
	p, _ := sell(t, quiet(1))
	for range 100 {
		l := must(t, p)
		var good atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if l.Release() == nil {
					good.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, good.Load())
		require.Equal(t, 1, p.Stats().Idle)
	}
}

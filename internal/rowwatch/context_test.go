package rowwatch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

type key struct{}

func TestAContextIsTheProgramsUntilItsRowsAreOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "a value"))
	defer cancel()
	c := &Context{Context: ctx}
	require.Equal(t, ctx.Done(), c.Done())
	require.Equal(t, "a value", c.Value(key{}))
	real, same := Of(c)
	require.Equal(t, ctx, real)
	require.Same(t, c, same)

	c.Opened()
	require.Nil(t, c.Done())
	cancel()
	require.ErrorIs(t, c.Err(), context.Canceled)
}

func TestAContextThatAWrapperHasChangedIsLeftToDatabaseSQL(t *testing.T) {
	derived := context.WithValue(&Context{Context: t.Context()}, key{}, "a span")
	same, c := Of(derived)
	require.Equal(t, derived, same)
	require.Nil(t, c)
}

func TestRowsAreClosedWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Context{Context: ctx}
		c.Opened()
		var closed error
		c.Watch(func() { closed = c.Closed() })
		synctest.Wait()
		require.NoError(t, closed)
		cancel()
		synctest.Wait()
		require.Equal(t, context.Canceled, closed)
	})
}

func TestRowsThatAreClosedAreNotClosedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Context{Context: ctx}
		c.Opened()
		c.Watch(func() { t.Error("closed again") })
		require.NoError(t, c.Closed())
		cancel()
		synctest.Wait()
	})
}

// A wrapper that has read the rows hands on rows of its own: database/sql watches those.
func TestRowsThatAWrapperHasClosedAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Context{Context: ctx}
		c.Opened()
		require.NoError(t, c.Closed())
		require.NotNil(t, c.Done())
		c.Watch(func() { t.Error("closed") })
		cancel()
		synctest.Wait()
	})
}

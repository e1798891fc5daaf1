package mergedctx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type key struct{}

func TestAMergedContextEndsWithEither(t *testing.T) {
	cause := errors.New("cause")
	for name, end := range map[string]func(first, second context.CancelCauseFunc){
		"first":  func(first, _ context.CancelCauseFunc) { first(cause) },
		"second": func(_, second context.CancelCauseFunc) { second(cause) },
	} {
		t.Run(name, func(t *testing.T) {
			first, endFirst := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
			second, endSecond := context.WithCancelCause(t.Context())
			ctx, merged := New(first, second)
			defer merged.Release()
			require.NoError(t, ctx.Err())
			require.Equal(t, 1, ctx.Value(key{}))
			end(endFirst, endSecond)
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.Equal(t, cause, context.Cause(ctx))
		})
	}
}

func TestADeadlineOfTheSecondIsToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx, merged := New(t.Context(), second)
		defer merged.Release()
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		merged.Release()
		require.Equal(t, context.DeadlineExceeded, ctx.Err(), "it does not change")
	})
}

func TestADetachedContextEndsWithTheFirstAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second, cancel := context.WithCancel(t.Context())
		first, end := context.WithCancel(t.Context())
		ctx, merged := New(first, second)
		merged.Detach()
		cancel()
		synctest.Wait()
		require.NoError(t, ctx.Err())
		end()
		<-ctx.Done()
	})
}

func TestNothingIsMergedWhereOneIsEnough(t *testing.T) {
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, second := range []context.Context{context.Background(), context.WithValue(first, key{}, 1)} {
		ctx, merged := New(first, second)
		require.Equal(t, first, ctx)
		require.Nil(t, merged)
		merged.Detach()
		merged.Release()
	}
}

package connpool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errNo = errors.New("no")

func describe(value any) error { return fmt.Errorf("panicked: %v", value) }

func TestTheErrorOfAFunctionThatReturnsIsItsOwn(t *testing.T) {
	t.Parallel()
	left, err := callBounded(t.Context(), 0, func() error { return errNo }, describe)
	require.Nil(t, left)
	require.ErrorIs(t, err, errNo)
}

func TestAPanicAndAnEndedGoroutineAreErrors(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func() error{
		"panicked: boom":  func() error { panic("boom") },
		"panicked: <nil>": func() error { runtime.Goexit(); return nil },
	} {
		left, err := callBounded(t.Context(), 0, f, describe)
		require.Nil(t, left)
		require.EqualError(t, err, want)
	}
}

func TestAFunctionMayReturnInTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		left, err := callBounded(ctx, time.Second, func() error { time.Sleep(2*time.Second - 1); return errNo }, describe)
		require.Nil(t, left)
		require.ErrorIs(t, err, errNo)
	})
}

func TestAFunctionThatDoesNotReturnIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		left, err := callBounded(ctx, time.Second, func() error { time.Sleep(time.Minute); return errNo }, describe)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.ErrorIs(t, <-left, errNo)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

package ctxerr_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

type safeError struct{ error }

func (safeError) SafeToRetry() bool { return true }

func (e safeError) Unwrap() error { return e.error }

var (
	errDriver = errors.New("connection reset")
	errWhy    = errors.New("another goroutine failed")
	errRetry  = safeError{fmt.Errorf("%w: %w", errWhy, driver.ErrBadConn)}
)

func ended(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

func TestAnErrorGetsTheContextsErrorAndCauseOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		cause error
		err   error
		want  string
	}{
		"neither is in it":          {errWhy, errDriver, "connection reset (context canceled: another goroutine failed)"},
		"no cause":                  {nil, errDriver, "connection reset (context canceled)"},
		"the context's error is":    {errWhy, context.Canceled, "context canceled: another goroutine failed"},
		"the cause is":              {errWhy, errWhy, "another goroutine failed (context canceled)"},
		"both are":                  {errWhy, errors.Join(context.Canceled, errWhy), "context canceled\nanother goroutine failed"},
		"it has no cause, but that": {nil, context.Canceled, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := ended(tc.cause)
			err := ctxerr.WithEnd(ctx, tc.err)
			require.EqualError(t, err, tc.want)
			require.ErrorIs(t, err, tc.err)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, context.Cause(ctx))
		})
	}
}

func TestACauseDoesNotMakeAnybodyRetry(t *testing.T) {
	require.True(t, ctxerr.SaysSafe(errRetry))
	require.False(t, ctxerr.SaysSafe(errWhy))
	require.Equal(t, errWhy, ctxerr.Harmless(errWhy), "there is nothing to hide")
	require.NoError(t, ctxerr.Harmless(nil))
	for name, err := range map[string]error{
		"alone":    ctxerr.Harmless(errRetry),
		"added":    ctxerr.WithEnd(ended(errRetry), errDriver),
		"added to": ctxerr.WithEnd(ended(errRetry), context.Canceled),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, err, errWhy)
			require.ErrorContains(t, err, errRetry.Error())
			require.NotErrorIs(t, err, driver.ErrBadConn)
			require.False(t, ctxerr.SaysSafe(err))
			require.ErrorAs(t, err, new(safeError), "other types are found")
		})
	}
}

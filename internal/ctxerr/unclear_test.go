package ctxerr_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

// TestAnUnclearOutcomeMakesNobodyRepeat: of the driver's error errors.Is finds only that a
// context has ended.
func TestAnUnclearOutcomeMakesNobodyRepeat(t *testing.T) {
	for name, tc := range map[string]struct {
		said  error
		ended error
	}{
		"a lost connection":       {driver.ErrBadConn, nil},
		"safe to retry":           {errRetry, nil},
		"a context that was left": {fmt.Errorf("%w: %w", driver.ErrBadConn, context.Canceled), context.Canceled},
		"a deadline":              {errors.Join(errRetry, context.DeadlineExceeded), context.DeadlineExceeded},
	} {
		for _, what := range []error{ctxerr.ErrUnclear, ctxerr.ErrCommitUnclear} {
			t.Run(name, func(t *testing.T) {
				err := ctxerr.Unclear(what, tc.said)
				require.ErrorIs(t, err, what)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.ErrorContains(t, err, tc.said.Error())
				require.NotErrorIs(t, err, driver.ErrBadConn)
				require.False(t, ctxerr.SaysSafe(err))
				for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
					require.Equal(t, ended == tc.ended, errors.Is(err, ended))
				}
			})
		}
	}
}

func TestOnlyAnErrorThatFollowsFromAContextGetsItsEnd(t *testing.T) {
	unclear := ctxerr.Unclear(ctxerr.ErrUnclear, driver.ErrBadConn)
	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		gets bool
	}{
		"no error":                {ended(errWhy), nil, false},
		"the context goes on":     {context.Background(), context.Canceled, false},
		"another error":           {ended(errWhy), errDriver, false},
		"the context's error":     {ended(errWhy), context.Canceled, true},
		"a deadline, of whomever": {ended(errWhy), context.DeadlineExceeded, true},
		"an unclear statement":    {ended(errWhy), unclear, true},
		"an unclear COMMIT":       {ended(errWhy), ctxerr.ErrCommitUnclear, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := ctxerr.Of(tc.ctx, tc.err)
			if !tc.gets {
				require.Equal(t, tc.err, err)
				return
			}
			require.ErrorIs(t, err, tc.err)
			require.ErrorIs(t, err, errWhy)
		})
	}
	require.EqualError(t, ctxerr.WhatEnded(ended(errWhy)), "context canceled: another goroutine failed")
	require.Equal(t, context.Canceled, ctxerr.WhatEnded(ended(nil)))
}

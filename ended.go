package pooldriver

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

// Where an error follows from the end of a context, errors.Is finds the error and the
// cause of that context in it: internal/ctxerr.

// ofContext returns the error of an operation with ctx. If err follows from the end of
// a context, and ctx has ended, the result contains what ended ctx.
func ofContext(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !followsFromAContext(err) {
		return err
	}
	return ctxerr.WithEnd(ctx, err)
}

func followsFromAContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errUnclear) || errors.Is(err, errCommitUnclear)
}

// whatEnded returns what ended ctx: its error and its cause, if that is another error.
func whatEnded(ctx context.Context) error { return ctxerr.WithEnd(ctx, ctx.Err()) }

func saysSafe(err error) bool { return ctxerr.SaysSafe(err) }

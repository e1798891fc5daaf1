package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Where an error follows from the end of a context, that one's error and its cause are
// found in it. A driver knows no causes, and may hide the error: a connection that was
// lost because the context has ended.

// ofContext is err, of an operation with ctx, with what ended ctx where err follows from
// that. What is in it already is not added.
func ofContext(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !followsFromAContext(err) {
		return err
	}
	return withEnd(ctx, err)
}

func followsFromAContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errUnclear) || errors.Is(err, errCommitUnclear)
}

// withEnd is err, which follows from the end of ctx, with that one's error and cause.
func withEnd(ctx context.Context, err error) error {
	ended, cause := ctx.Err(), context.Cause(ctx)
	hasEnded, hasCause := errors.Is(err, ended), errors.Is(err, cause)
	cause = within(cause)
	switch {
	case hasEnded && hasCause:
		return err
	case hasEnded:
		return fmt.Errorf("%w: %w", err, cause)
	case hasCause || ended == cause:
		return fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("%w (%w: %w)", err, ended, cause)
}

// whatEnded is what ended ctx: its error, and its cause where that is another one.
func whatEnded(ctx context.Context) error { return withEnd(ctx, ctx.Err()) }

// within is a context's cause for inside an error of ours. It may be what database/sql has
// said of something else (errgroup's first error), and must not make it execute again
// what has failed with ours, nor the program take that for safe.
func within(cause error) error {
	if errors.Is(cause, driver.ErrBadConn) || saysSafe(cause) {
		return &harmless{cause}
	}
	return cause
}

// harmless is an error without what database/sql or pgx repeat for.
type harmless struct{ cause error }

func (h *harmless) Error() string { return h.cause.Error() }

func (h *harmless) Is(target error) bool {
	return target != driver.ErrBadConn && errors.Is(h.cause, target)
}

func (h *harmless) As(target any) bool {
	if _, claims := target.(*interface{ SafeToRetry() bool }); claims {
		return false
	}
	return errors.As(h.cause, target)
}

// Package ctxerr puts the end of a context into the errors that follow from it. A driver knows no
// causes, and may hide the context's error: when a context has ended, it reports a lost connection.
package ctxerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// WithEnd returns err with the error and the cause of ctx, which has ended. It adds
// only what errors.Is does not find in err already.
func WithEnd(ctx context.Context, err error) error {
	ended, cause := ctx.Err(), context.Cause(ctx)
	hasEnded, hasCause := errors.Is(err, ended), errors.Is(err, cause)
	cause = Harmless(cause)
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

// Harmless returns a context's cause in a form that our errors may contain. The cause
// may be an error of another statement (errgroup's first error). If that error asks for
// a retry, database/sql must not execute our statement again because of it, and the
// program must not believe that our statement is safe to retry.
func Harmless(cause error) error {
	if errors.Is(cause, driver.ErrBadConn) || SaysSafe(cause) {
		return &harmless{cause}
	}
	return cause
}

// SaysSafe reports whether err itself says that nothing was sent, as an error of pgx may.
func SaysSafe(err error) bool {
	var claims interface{ SafeToRetry() bool }
	return errors.As(err, &claims) && claims.SafeToRetry()
}

// harmless hides its cause from errors.Is and errors.As: the cause would make database/sql or pgx
// retry.
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

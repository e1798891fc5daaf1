package ctxerr

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrUnclear takes the place of driver.ErrBadConn if the statement had been sent: after ErrBadConn
// database/sql executes a statement again. It is an io.ErrUnexpectedEOF.
var ErrUnclear = fmt.Errorf("pooldriver: the connection was lost after the statement had been sent, so the server may or may not have executed it; look at the data before you repeat the statement: %w", io.ErrUnexpectedEOF)

// ErrCommitUnclear takes the place of an error that says a COMMIT was not sent, if the COMMIT was
// sent, or if the dialect does not count what is sent. It is an io.ErrUnexpectedEOF.
var ErrCommitUnclear = fmt.Errorf("pooldriver: the connection was lost during COMMIT, so the transaction may or may not be committed; look at the data before you repeat the transaction: %w", io.ErrUnexpectedEOF)

// Unclear returns ErrUnclear or ErrCommitUnclear (what) in place of the driver's error (said). Of
// the driver's error, errors.Is finds only the end of a context in the result.
func Unclear(what, said error) error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(said, ended) {
			return fmt.Errorf("%w (%w; the driver says: %s)", what, ended, said.Error())
		}
	}
	return fmt.Errorf("%w (the driver says: %s)", what, said.Error())
}

// Of returns err, of an operation with ctx. If err follows from the end of ctx, Of adds what ended
// ctx.
func Of(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !followsFromAContext(err) {
		return err
	}
	return WithEnd(ctx, err)
}

func followsFromAContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrUnclear) || errors.Is(err, ErrCommitUnclear)
}

// WhatEnded is what ended ctx: its error, and its cause if the cause is another error.
func WhatEnded(ctx context.Context) error { return WithEnd(ctx, ctx.Err()) }

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/pooldriver/pooldriver/internal/bytesize"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// Reading ahead: the rows that the driver has not given yet are read into memory, so that
// other statements can use the session. The owner of the rows gets the same rows, result
// sets, column types and errors, in the same order.

// ErrNestedBuffer is pooldriver.ErrNestedBuffer.
var ErrNestedBuffer = errors.New("pooldriver: rows that are open are larger than pool_nested_buffer")

// errMoreIsLeft: reading ahead has stopped at the end of its step.
var errMoreIsLeft = errors.New("pooldriver: more rows are left")

// noRoomError is an ErrNestedBuffer because the rows of all statements together take too much
// memory.
type noRoomError struct{ held, most int64 }

func (e *noRoomError) Error() string {
	return fmt.Sprintf("pooldriver: rows that are open cannot be read into memory: the rows of all statements together may take no more than pool_nested_buffer_total; close rows first, raise pool_nested_buffer_total, or let queries return less; %d of %d bytes are taken", e.held, e.most)
}

func (e *noRoomError) Is(target error) bool { return target == ErrNestedBuffer }

// limits bound reading ahead, in bytes. Config.NestedBuffer does so, too.
type limits struct {
	step  int64 // bytes that were ever read ahead of these rows
	total int64 // bytes of all rows in memory
}

// ReadAhead reads the rest of the open rows into memory, for a statement of their own task.
// After an error (too large, no room, ctx has ended) the rows stay open, and their owner
// loses none of them.
func (s *Session) ReadAhead(ctx context.Context) error {
	r := s.rows.Load()
	if r == nil {
		return nil
	}
	return r.readAhead(ctx, limits{step: math.MaxInt64, total: s.env.NestedBufferTotal})
}

// firstStep is the size of the first step of ReadMore, in bytes.
const firstStep = 256 << 10

// ReadMore reads more of the rows into memory, because other tasks wait for a connection.
// Each step doubles what was read ahead. done reports that all rows are in memory. If
// another step cannot help, the rows are not Reclaimable any more.
func (r *Rows) ReadMore(ctx context.Context) (done bool) {
	env := r.session.env
	err := r.readAhead(ctx, limits{max(firstStep, 2*r.tried), env.NestedBufferOthers})
	if err == nil {
		return true
	}
	var full *noRoomError
	if err != errMoreIsLeft && !errors.As(err, &full) || r.tried > env.NestedBuffer {
		r.tooMuch = true
	}
	return false
}

// Reclaimable reports whether ReadMore may free the session: the rows are detachable, and
// reading ahead has not come to its limit.
func (r *Rows) Reclaimable() bool {
	return r != nil && !r.tooMuch && !r.session.Unusable() && r.detachable()
}

// TooLarge reports whether reading ahead has come to its limit.
func (r *Rows) TooLarge() bool { return r.tooMuch }

// SkipReadAhead makes the rows not Reclaimable.
func (r *Rows) SkipReadAhead() { r.tooMuch = true }

// Tried is the number of bytes that were read ahead so far, including those that the owner
// has taken from memory.
func (r *Rows) Tried() int64 { return r.tried }

// readAhead reads the rest of the rows into memory and closes the driver's rows. The owner
// is told if the checkout does not use the session any more.
func (r *Rows) readAhead(ctx context.Context, most limits) error {
	s := r.session
	if r.prefix == nil {
		r.prefix = rowbuffer.New(s.env.Buffered)
		r.capture()
		if r.scanner != nil && r.onRow {
			r.detach(r.prefix.Hold)
		}
	}
	b := r.prefix
	if err := r.fill(ctx, most); err != nil {
		return err
	}
	s.env.ReadAheads.Add(1)
	b.SetClosed(r.Close())
	r.prefix = nil
	if r.usage == inPlace || r.detachable() {
		r.usage = detached
		s.owner.Detached()
	}
	if k, ok := r.real.(direct.Kept); ok {
		k.Kept()
	}
	r.ahead.Store(b) // comes last: from here on the owner reads b without the lock
	return nil
}

// room returns an error if no further row may be read into memory. Each reader exceeds a limit
// by one row at most.
func (r *Rows) room(most limits) error {
	b, env := r.prefix, r.session.env
	if b.Bytes() > env.NestedBuffer {
		r.tooMuch = true
		return fmt.Errorf("%w: %d rows in %s are not all that is left; close them first, raise pool_nested_buffer, or let the outer query return less", ErrNestedBuffer, b.Rows(), bytesize.Format(b.Bytes()))
	}
	if r.tried > most.step {
		return errMoreIsLeft
	}
	if held := env.Buffered.Load(); held > most.total {
		return &noRoomError{held, most.total}
	}
	return nil
}

// fill reads the rest of all result sets into the prefix.
func (r *Rows) fill(ctx context.Context, most limits) error {
	b := r.prefix
	for {
		b.Compact()
		if end, err := r.fillSet(ctx, most); err != nil {
			return err
		} else if b.End(end); end != io.EOF {
			return nil // database/sql does not read on after an error
		}
		more := driverconn.HasNextResultSet(r.real)
		next := io.EOF
		if more {
			next = r.readSet()
		}
		b.EndSets(more, next)
		if next != nil {
			return nil
		}
		r.capture()
	}
}

// fillSet reads the rest of a result set. end is the driver's error after the last row.
func (r *Rows) fillSet(ctx context.Context, most limits) (end, _ error) {
	for read := r.readDetached; !r.ended; {
		if err := r.room(most); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		weight, err := r.prefix.Add(read)
		if err != nil {
			return err, nil
		}
		r.tried += weight
	}
	return io.EOF, nil
}

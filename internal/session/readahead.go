package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/pooldriver/pooldriver/internal/bytesize"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// Reading ahead: the rest of open rows is read into memory, so that their session can be
// used. What the owner of the rows sees is the same: rows, result sets, column types, and
// an error where it is.

// ErrNestedBuffer is pooldriver.ErrNestedBuffer.
var ErrNestedBuffer = errors.New("pooldriver: rows that are open are larger than pool_nested_buffer")

// errMoreIsLeft: reading ahead has come to the end of its step.
var errMoreIsLeft = errors.New("pooldriver: more rows are left")

// noRoomError is an ErrNestedBuffer that is due to other rows.
type noRoomError struct{ held, most int64 }

func (e *noRoomError) Error() string {
	return fmt.Sprintf("pooldriver: rows that are open cannot be read into memory: those of all statements together may take no more than pool_nested_buffer_total; close rows first, raise it, or let queries return less; %d of %d bytes are taken", e.held, e.most)
}

func (e *noRoomError) Is(target error) bool { return target == ErrNestedBuffer }

// limits are those of reading ahead beside Env.Buffer, in bytes.
type limits struct {
	step  int64 // of what was ever read ahead of these rows
	total int64 // of what is in memory of all rows
}

// ReadAhead reads what is left of the open rows into memory, for a statement of their own
// task. After an error (too large, no room, ctx has ended) the rows go on from there.
func (s *Session) ReadAhead(ctx context.Context) error {
	r := s.rows.Load()
	if r == nil {
		return nil
	}
	return r.readAhead(ctx, limits{step: math.MaxInt64, total: s.env.BufferTotal})
}

// firstStep is how much of rows is read ahead at first for others that wait, in bytes.
const firstStep = 256 << 10

// ReadMore reads more of the rows into memory for others that wait: twice as much as last
// time. done tells that this was all. After an error other than the end of the step, or of
// the room, the rows are not tried again.
func (r *Rows) ReadMore(ctx context.Context) (done bool) {
	env := r.session.env
	err := r.readAhead(ctx, limits{max(firstStep, 2*r.tried), env.BufferOthers})
	if err == nil {
		return true
	}
	var full *noRoomError
	if err != errMoreIsLeft && !errors.As(err, &full) || r.tried > env.Buffer {
		r.tooMuch = true
	}
	return false
}

// Reclaimable reports whether nothing but these rows has happened in their checkout, and
// reading them ahead may come to an end.
func (r *Rows) Reclaimable() bool {
	return r != nil && r.usage == alone && !r.tooMuch && !r.session.Unusable()
}

// TooLarge reports whether reading ahead has come to its limit.
func (r *Rows) TooLarge() bool { return r.tooMuch }

// SkipReadAhead has the rows not be read ahead for others again.
func (r *Rows) SkipReadAhead() { r.tooMuch = true }

// Tried is how many bytes of the rows were read ahead so far.
func (r *Rows) Tried() int64 { return r.tried }

// readAhead reads what is left of the rows into memory and closes the driver's rows. Where
// nothing else has happened in their checkout, it has lost the session by that.
func (r *Rows) readAhead(ctx context.Context, most limits) error {
	s := r.session
	if r.prefix == nil {
		r.prefix = rowbuffer.New(s.env.Buffered)
		r.prefix.Capture(r.real)
	}
	b := r.prefix
	if err := r.fill(ctx, most); err != nil {
		return err
	}
	s.env.ReadAheads.Add(1)
	b.SetClosed(r.Close())
	r.prefix = nil
	if r.usage == alone || r.usage == inPlace {
		r.usage = detached
		s.holder.Detached()
	}
	r.ahead.Store(b) // the last: from here on the owner needs no lock
	return nil
}

// room says whether another row may be read into memory, and if not, why. All limits are
// passed by one row at most for each reader.
func (r *Rows) room(most limits) error {
	b, env := r.prefix, r.session.env
	if b.Bytes() > env.Buffer {
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

// fill does readAhead's reading.
func (r *Rows) fill(ctx context.Context, most limits) error {
	b := r.prefix
	for {
		b.Compact()
		if end, err := r.fillSet(ctx, most); err != nil {
			return err
		} else if b.End(end); end != io.EOF {
			return nil // database/sql reads no further
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
		b.Capture(r.real)
	}
}

// fillSet reads what is left of a result set. end is what the driver said after its last
// row.
func (r *Rows) fillSet(ctx context.Context, most limits) (end, _ error) {
	for read := r.read; !r.ended; {
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

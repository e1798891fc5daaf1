package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// Reading ahead: the rest of open rows is read into memory, so that their
// connection can be used. What the owner of the rows sees is the same: rows,
// result sets, column types, and an error where it is.

type ahead = atomic.Pointer[rowbuffer.Buffer]

// readAhead reads what is left of the rows into memory for a statement of their own
// task, see readTo.
func (r *rows) readAhead(ctx context.Context, c *Connector) error {
	return r.readTo(ctx, c, bounds{step: math.MaxInt64, total: c.most()})
}

// bounds are those of reading ahead beside Config.NestedBuffer, in bytes.
type bounds struct {
	step  int64 // of what was ever read ahead of these rows
	total int64 // of what is in memory of all rows
}

// most is the bound of what is in memory of all rows.
func (c *Connector) most() int64 { return max(c.config.NestedBufferTotal, c.config.NestedBuffer) }

// mostForOthers is the same where rows are read ahead for those who wait. That may
// be in vain, and must not use up what tasks need for their own statements: those
// get an error where there is no room, and who waits only waits on.
func (c *Connector) mostForOthers() int64 {
	return max(c.config.NestedBufferTotal/2, c.config.NestedBuffer)
}

// errMoreIsLeft: reading ahead has come to the end of its step.
var errMoreIsLeft = errors.New("pooldriver: more rows are left")

// noRoomError is an ErrNestedBuffer that is due to other rows.
type noRoomError struct{ held, most int64 }

func (e *noRoomError) Error() string {
	return fmt.Sprintf("pooldriver: rows that are open cannot be read into memory: those of all statements together may take no more than pool_nested_buffer_total; close rows first, raise it, or let queries return less; %d of %d bytes are taken", e.held, e.most)
}

func (e *noRoomError) Is(target error) bool { return target == ErrNestedBuffer }

// readTo reads what is left of the rows into memory, under the connection's
// lock, and closes the driver's rows. Where nothing else has happened in their
// checkout, it has lost the connection by that; the caller takes it. On an error (too
// large, no room, ctx has ended) what was read is kept, and the rows go on from there.
func (r *rows) readTo(ctx context.Context, c *Connector, limits bounds) error {
	if r.prefix == nil {
		r.prefix = rowbuffer.New(&r.pool.stats.buffered)
		r.prefix.Capture(r.real)
	}
	b := r.prefix
	if err := r.fill(ctx, c, limits); err != nil {
		return err
	}
	c.stats.readAheads.Add(1)
	b.SetClosed(r.shut())
	r.prefix = nil
	r.reclaimed = r.soleOperation
	r.ahead.Store(b) // the last: from here on the owner needs no lock
	return nil
}

// room says whether another row may be read into memory, and if not, why. All bounds
// are passed by one row at most for each that reads ahead.
func (r *rows) room(c *Connector, limits bounds) error {
	b := r.prefix
	if b.Bytes() > c.config.NestedBuffer {
		r.tooMuch = true
		return fmt.Errorf("%w: %d rows in %s are not all that is left; close them first, raise pool_nested_buffer, or let the outer query return less", ErrNestedBuffer, b.Rows(), size(b.Bytes()))
	}
	if r.tried > limits.step {
		return errMoreIsLeft
	}
	if held := c.stats.buffered.Load(); held > limits.total {
		return &noRoomError{held, limits.total}
	}
	return nil
}

// fill does readTo's reading.
func (r *rows) fill(ctx context.Context, c *Connector, limits bounds) error {
	b := r.prefix
	for {
		b.Compact()
		if end, err := r.fillSet(ctx, c, limits); err != nil {
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
func (r *rows) fillSet(ctx context.Context, c *Connector, limits bounds) (end, _ error) {
	for read := r.read; !r.ended; {
		if err := r.room(c, limits); err != nil {
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

// clear reads the rows that are open on r into memory. Their checkout, if it has
// done nothing else, does not need the connection any more.
func (b *binding) clear(ctx context.Context, r *realConn) error {
	rows := r.live.Load()
	if rows == nil {
		return nil
	}
	if err := rows.readAhead(ctx, b.connector); err != nil {
		return err
	}
	if rows.reclaimed || rows.holds {
		r.seat.users--
	}
	return nil
}

// clearOthers reads the rows into memory that the task has open on connections
// other than r: on a database where they keep r from writing. What is too large
// stays, and the database has the last word.
func (b *binding) clearOthers(ctx context.Context, r *realConn) {
	for _, other := range b.connector.connections() {
		if other == r || other.holder.Load() != b || other.live.Load() == nil || !other.lock.TryLock() {
			continue
		}
		func() {
			defer b.pass(other) // also by a panic of the driver
			if other.holder.Load() == b && !other.seat.separate && other.seat.raw == nil {
				_ = b.clear(ctx, other)
			}
		}()
	}
}

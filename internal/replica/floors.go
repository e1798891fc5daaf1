package replica

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/task"
)

// A context's floor is the position in the log that a replica must have reached to serve the context's reads: that
// of its writes. A read that the primary has served in place of a replica raises the floor, too: a later read
// must not show less.

// floorOf returns the floor of a context, nil if none is kept.
func (c *conn) floorOf(ctx context.Context) *floor.Floor {
	var at task.Place
	if c.set.engine.FindPlace(ctx, &at) != nil {
		return nil
	}
	return c.floorAt(ctx, &at)
}

// floorAt is floorOf for a context whose place is known.
func (c *conn) floorAt(ctx context.Context, at *task.Place) *floor.Floor {
	if c.set.positions == nil {
		return nil
	}
	return floor.Of(ctx, at.Task, c.set, c.set.positions)
}

// pick chooses a replica for a read.
func (c *conn) pick(ctx context.Context, at *task.Place) (routed, error) {
	f := c.floorAt(ctx, at)
	if f == nil {
		return c.pickAny(ctx)
	}
	position, primaryOnly := f.Now()
	if primaryOnly && !c.set.config.ReplicaFallback { // no read on the primary will raise f
		position, primaryOnly = c.anew(ctx, f)
	}
	if primaryOnly {
		return c.fallBack(ctx, Unknown)
	}
	r, why := c.staying(f)
	if r == nil && why == Served {
		if r, why = c.set.choose(position); r != nil {
			var stays any
			if stays, position, primaryOnly = f.Stay(r); primaryOnly {
				return c.fallBack(ctx, Unknown)
			}
			r = stays.(*Replica) // a read at the same time may have chosen another one
		}
	}
	if why == Served {
		why = c.ready(ctx, r, position)
	}
	switch why {
	case Served, Waited:
		return routed{link: c.to(ctx, r), why: why}, nil
	case Behind: // the context stays with r
	default:
		f.Leave()
	}
	return c.fallBack(ctx, why)
}

// anew is Now of f after the primary was asked for its position. The checkout does not use the primary otherwise.
func (c *conn) anew(ctx context.Context, f *floor.Floor) (position string, primaryOnly bool) {
	mark := f.Mark()
	asking, cancel := context.WithTimeout(ctx, c.set.config.PingTimeout)
	defer cancel()
	asked, err := c.primary.conn.Written(asking)
	c.primary.conn.IsValid() // ends the use: its connection goes back, and the next statement need not join it
	if err == nil && asked != "" {
		f.Raise(mark, asked)
	}
	return f.Now()
}

// ready waits until r has replayed up to position, if it has not. Where replicas may be too late, it also waits until
// it is known how late r is.
func (c *conn) ready(ctx context.Context, r *Replica, position string) Reason {
	if position == "" && c.set.config.ReplicaMaxLag == 0 || r.watcher.Reached(position) {
		return Served
	}
	begun := time.Now()
	reached := r.watcher.Wait(ctx, position, c.set.config.ReplicaWait)
	c.set.Wait.Record(time.Since(begun), 1)
	switch {
	case !reached && position == "":
		if why := r.state(); why != Served {
			return why
		}
		return Late
	case !reached:
		return Behind
	case position == "":
		return Served
	}
	return Waited
}

// staying returns the replica from which the context has read. nil: from none, if why is Served, or from one that
// cannot serve any more.
func (c *conn) staying(f *floor.Floor) (_ *Replica, why Reason) {
	r, _ := f.Replica().(*Replica)
	if r == nil {
		return nil, Served
	}
	return r, r.state()
}

// pickAny is pick without a floor.
func (c *conn) pickAny(ctx context.Context) (routed, error) {
	for _, l := range c.links {
		if l.used && l.replica.state() == Served {
			return routed{link: l, why: Served}, nil // its *sql.Conn stays with it
		}
	}
	r, why := c.set.choose("")
	if r != nil {
		why = c.ready(ctx, r, "")
	}
	if why != Served {
		return c.fallBack(ctx, why)
	}
	return routed{link: c.to(ctx, r), why: why}, nil
}

// raises returns the floor that a call which the primary has served must raise; nil: it need not.
func (c *conn) raises(ctx context.Context, query string, to routed) *floor.Floor {
	if to.link == nil || to.replica != nil || c.tx != nil {
		return nil
	}
	f := c.floorOf(ctx)
	if f == nil || to.why == Served && c.set.readsOnly(query) {
		return nil
	}
	return f
}

// raise raises f after a call on the primary that has failed with err.
func (c *conn) raise(ctx context.Context, f *floor.Floor, err error) {
	if f == nil {
		return
	}
	position, mark := "", f.Mark() // before the question: its answer may lack a write that is lost meanwhile
	if err == nil {
		position, err = c.written(ctx)
	}
	switch {
	case err != nil:
		f.Unknown()
	case position != "": // else a transaction is open, whose end raises f
		f.Raise(mark, position)
	}
}

// written is Written of the primary, also where ctx has ended.
func (c *conn) written(ctx context.Context) (string, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.set.config.PingTimeout)
	defer cancel()
	position, err := c.primary.conn.Written(asking)
	if scope := task.PlaceOf(ctx).Scope; errors.Is(err, sql.ErrTxDone) && scope != nil {
		return c.written(scope.Context) // the commit was that of InTx, under whose context nothing runs any more
	}
	return position, err
}

// virtualRows are the rows of package virtual.
type virtualRows interface {
	driver.RowsNextResultSet
	driver.RowsColumnTypeScanType
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
}

// raiser raises a floor when the rows of a statement are closed: until then the statement is not over.
type raiser struct {
	conn   *conn
	ctx    context.Context
	floor  *floor.Floor
	failed error // of the statement, while its rows were read
}

// read takes note of the error of a read, and returns it.
func (r *raiser) read(err error) error {
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return err
}

// closed raises the floor, and returns the error of the close. If the context has ended, the statement may still run.
func (r *raiser) closed(err error) error {
	r.conn.raise(r.ctx, r.floor, errors.Join(r.failed, err, r.ctx.Err()))
	return err
}

// raisingRows are rows with a raiser.
type raisingRows struct {
	virtualRows
	raiser
}

func (r *raisingRows) Next(dest []driver.Value) error { return r.read(r.virtualRows.Next(dest)) }

func (r *raisingRows) NextResultSet() error { return r.read(r.virtualRows.NextResultSet()) }

func (r *raisingRows) Close() error { return r.closed(r.virtualRows.Close()) }

// scanningRows are raisingRows that scan their columns themselves.
type scanningRows struct {
	*raisingRows
	scanner driverconn.ColumnScanner
}

func (r scanningRows) NextRow() error { return r.read(r.scanner.NextRow()) }

func (r scanningRows) ScanColumn(ctx driverconn.ScanContext, index int, dest any) error {
	return r.scanner.ScanColumn(ctx, index, dest)
}

// raising returns rows that raise f when they are closed.
func (c *conn) raising(ctx context.Context, rows driver.Rows, f *floor.Floor) driver.Rows {
	own := &raisingRows{rows.(virtualRows), raiser{conn: c, ctx: ctx, floor: f}}
	if s := driverconn.ColumnScannerOf(rows); s != nil {
		return scanningRows{own, s}
	}
	return own
}

package virtual

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
)

// This file decides whether an operation that has failed is tried again.

// failed is finish for an error of the driver.
func (op *operation) failed(ctx context.Context, err error, executes bool) (again bool, _ error) {
	c := op.c
	r := op.Conn
	o := op.outcomeOf(err, executes)
	o.expired = ctx.Err() != nil
	c.held.Touch()
	if o.badConn || o.lost {
		op.cut = true
		r.Session.MarkUnusable()
	} else if c.held.InTask() && r.Session.HasTx() && r.Session.EndsTx(op.Said, op.Effect) {
		// This may be wrong: SQLite's transaction stays open if a write was interrupted
		// before the write began. inspect asks the session when the connection comes back.
		r.Session.TxEnded()
	}
	if o.badConn && o.first && o.trusted {
		// The check of idle connections did not find this dead connection. The cause may have ended
		// other connections, too, and the check may miss them as well.
		r.FlushGeneration()
	}
	v := judge(o)
	switch {
	case v.retry:
		c.source.report.Retries.Add(1)
		c.held.MoveOn(&op.Want)
		return true, nil
	case v.unclear:
		err = ctxerr.Unclear(ctxerr.ErrUnclear, err)
	case o.badConn && o.expired:
		err = ctxerr.WithEnd(ctx, err) // some drivers close a connection when a context ends
	}
	return false, c.held.WithTaskEnd(r, ctxerr.Of(ctx, err))
}

// outcomeOf collects the facts on which judge decides.
func (op *operation) outcomeOf(err error, executes bool) outcome {
	r := op.Conn
	unsent, counted := r.Session.Unsent()
	return outcome{
		badConn:  errors.Is(err, driver.ErrBadConn),
		lost:     r.Session.TxStatus() == dialects.TxLost,
		claims:   executes && ctxerr.SaysSafe(err),
		executes: executes,
		unsent:   unsent,
		wasIdle:  op.Said&dialects.WasIdle != 0,
		ended:    op.Said&dialects.SessionEnded != 0,
		trusted:  !counted && !r.Session.Traits().BadConnUnsure,
		first:    op.c.held.Alone(&op.Want),
		retried:  op.Retried,
		undone:   undone(op),
	}
}

// undone reports whether nothing is left of op on a server whose connection is lost: op began its
// transaction, COMMIT was not sent, and its text neither ends a transaction nor runs unknown code, nor does what a rollback leaves.
func undone(op *operation) bool {
	return op.begins && op.Direct == nil && op.Effect == dialects.Clean && dialects.OnlyData(op.Text) && !dialects.OutlastsRollback(op.Text)
}

// outcome describes an operation that has failed.
type outcome struct {
	badConn  bool // the driver returned driver.ErrBadConn
	claims   bool // the error itself says that nothing was sent
	lost     bool // the connection is closed
	executes bool // the operation may change data: it is no prepare, begin or ping
	unsent   bool // by our own count, no byte was given to the network
	wasIdle  bool // the server says that it was waiting for a statement when it ended the connection
	ended    bool // the server says that it ends the session, whatever the driver knows of that
	trusted  bool // there is no count, and this driver returns ErrBadConn only if nothing was sent
	first    bool // nothing else has happened in this checkout
	retried  bool // this was the second try
	expired  bool // the caller's context has ended
	undone   bool // the end of the connection has undone all that the operation may have done
}

// verdict is the decision on an outcome.
type verdict struct {
	retry   bool // try once more, on another real connection
	unclear bool // hide that the error says "nothing was sent": database/sql would execute again
}

// judge decides whether an operation that failed is tried again. It is tried again only if the
// server cannot have executed it, and nothing else depends on the connection. A prepare, a begin
// or a ping is safe to repeat in any case: its effect has ended with its connection. For these three
// it is enough that the server says that it ends the session. For an execution that is not enough: a
// procedure may cause the same answer after a COMMIT.
//
// The first statement of a transaction that carried its BEGIN is undone with its connection, too.
//
// If there is no count of bytes and the driver can be trusted, its ErrBadConn goes to
// database/sql, which tries again as it does without us. An error that only claims that the operation
// is safe to repeat is not believed.
func judge(o outcome) verdict {
	safe := o.unsent || o.wasIdle || !o.executes
	repeatable := safe || o.undone
	doubtful := o.claims
	if o.badConn {
		doubtful = !o.trusted
	}
	return verdict{
		retry:   (o.badConn || o.lost || o.ended && !o.executes) && repeatable && o.first && !o.retried && !o.expired,
		unclear: doubtful && !safe,
	}
}

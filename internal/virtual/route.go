package virtual

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// This file sends an operation to the primary or to a replica, and records what the contexts of its writes must see.

// route is where an operation goes. At its end it is empty.
type route struct {
	at     task.Place      // what the operation's context says of tasks
	placed bool            // at was looked up
	why    replica.Reason  // why the primary serves what a replica may serve
	fixed  replica.Reason  // why it goes to the primary, whatever Pick says; Served: it need not
	failed error           // the error that a replica has returned
	more   *textcache.Text // the text that a replica has refused, because it writes or needs a primary
	floor  *floor.Floor    // the floor of the read's context; nil: it keeps none
	shows  bool            // a replica serves the read, so its answer raises floor
	tries  int             // how many replicas were tried
}

// routeOp chooses the server of op. In a transaction of its checkout that is the transaction's.
func routeOp(ctx context.Context, op *operation) error {
	c, to, set := op.c, op.c.to, op.c.source.Replicas
	to.why = replica.None
	if c.held.HasTx() || op.kind == pinging && c.held.Bound() {
		return nil
	}
	if to.fixed != replica.Served {
		return fallBack(ctx, op)
	}
	if err := findPlace(ctx, op); err != nil {
		return err
	}
	reads, returns, writes := readsOf(ctx, op)
	if reads {
		to.floor = floorOf(ctx, c, to.at.Task)
	}
	server, why, err := set.Pick(ctx, replica.Op{Place: &to.at, Floor: to.floor, Reads: reads, Returns: returns, Bound: c.held.Bound(), On: c.on})
	if err != nil {
		return unserved(op, why, err)
	}
	if writes && server == nil && why == replica.None {
		why = replica.Writes
	}
	to.why = why
	send(op, server)
	return nil
}

// findPlace asks for the task of op, which may be a function of the program, once for all tries.
func findPlace(ctx context.Context, op *operation) error {
	to := op.c.to
	if to.placed {
		return nil
	}
	err := op.c.source.engine.FindPlace(ctx, &to.at)
	to.placed, op.Place = err == nil, &to.at
	return err
}

// fallBack sends op to the primary, because of what has happened on a replica.
func fallBack(ctx context.Context, op *operation) error {
	op.c.to.why = op.c.to.fixed
	if op.c.to.why != replica.Refused {
		if err := op.c.source.Replicas.FallBack(ctx, op.c.to.why); err != nil {
			return unserved(op, op.c.to.why, err)
		}
	}
	send(op, nil)
	return nil
}

// send makes to the server of op; nil: the primary.
func send(op *operation, to *replica.Replica) {
	goTo(op.c, to)
	op.Owes = nil
	switch {
	case to == nil:
		op.Owes = op.c.to.floor
	case op.c.source.config.ReplicaMaxLag > 0: // the answer of a pipeline may come too late
		op.Pace = nil
	}
}

// unserved counts op, which nobody serves, and returns its error.
func unserved(op *operation, why replica.Reason, err error) error {
	op.c.source.Replicas.Count(why)
	if op.c.to.failed != nil {
		err = fmt.Errorf("%w: %w", err, ctxerr.Harmless(op.c.to.failed))
	}
	return err
}

// readsOf reports whether a replica may serve op, and whether op asks for what the last statement has left in its session.
// writes: it must not, although its context asks for one.
func readsOf(ctx context.Context, op *operation) (reads, returns, writes bool) {
	set := op.c.source.Replicas
	switch op.kind {
	case executing, querying, preparing:
		asks, wants := set.Asks(ctx, config.ReadsAuto)
		returns = op.kind != preparing && op.is(textcache.AsksBack)
		only := asks && op.is(textcache.OnlyReads)
		return only && !returns, returns, wants && !only
	case beginning:
		return mayReadTx(ctx, op.c, op.opts), false, false
	}
	return false, false, false
}

// mayReadTx reports whether a replica may serve a transaction.
func mayReadTx(ctx context.Context, c *checkout, opts driver.TxOptions) bool {
	if c.source.Replicas == nil || !opts.ReadOnly || sql.IsolationLevel(opts.Isolation) >= sql.LevelSerializable {
		return false
	}
	asks, _ := c.source.Replicas.Asks(ctx, config.ReadsTx)
	return asks
}

// is answers a question about the text of op.
func (op *operation) is(q textcache.Question) bool {
	t, _ := op.c.look(op.Text)
	return t.Is(q, &op.c.source.judges)
}

// elsewhere reports whether op, which has failed on a replica with err, runs once more, on another server: nothing has come of it.
func elsewhere(ctx context.Context, op *operation, err error) bool {
	c, on := op.c, op.c.on
	if err == nil || on == nil || c.held.HasTx() || err == driver.ErrSkip {
		return false
	}
	if on.Unavailable(ctx, err, op.cut) {
		op.c.to.failed, op.cut = err, false
		tryNext(op, replica.Dead)
	} else if !refused(ctx, op, err) {
		return false
	}
	op.CameBack = true
	return true
}

// tryNext sends op to another replica; if it has tried as many as there are, to the primary.
func tryNext(op *operation, why replica.Reason) {
	op.CameBack = true
	if op.c.to.tries++; op.c.to.tries >= len(op.c.source.Replicas.All) {
		op.c.to.fixed = why
	}
}

// refused reports whether a replica has refused op because it writes, or is in the way of the replication.
func refused(ctx context.Context, op *operation, err error) bool {
	if ctx.Err() != nil || op.kind == beginning {
		return false
	}
	switch said := op.c.source.config.Dialect.Diagnose(err); {
	case said&(dialects.RoleDoubt|dialects.PrimaryOnly) != 0:
		op.c.to.more, _ = op.c.look(op.Text)
		op.Pace = nil // in a pipeline it could run twice
	case said&dialects.Conflict == 0: // with the replication, which the primary does not have
		return false
	}
	op.c.to.fixed = replica.Refused
	return true
}

// admit is called before op is sent to a replica. again: it is to go elsewhere.
func admit(op *operation) (again bool, _ error) {
	if !op.c.held.HasTx() {
		return !shows(op, op.Conn.Era), nil
	}
	if op.is(textcache.TakesLocks) {
		return false, errLockOnReplica
	}
	return false, nil
}

var errLockOnReplica = errors.New("pooldriver: this transaction has begun on a replica, where an advisory lock keeps nobody else from anything: begin it with pooldriver.Primary(ctx)")

// shows reports whether the replica's connection that op has got, or that has given its answer, is as new as what op's context has
// seen, and not too late. If not, op goes to another server.
func shows(op *operation, era uint64) bool {
	to := op.c.to
	showed(to)
	if to.why > replica.Waited || op.kind == preparing {
		return true
	}
	if op.c.on.TooLate() {
		tryNext(op, replica.Late)
		return false
	}
	if to.floor == nil {
		return true
	}
	if to.shows = to.floor.Shows(op.c.on.Server(era)); !to.shows {
		to.floor.LoseServer()
		to.fixed, op.CameBack = replica.Unknown, true
	}
	return to.shows
}

func showed(to *route) {
	if to.shows {
		to.floor.Showed()
		to.shows = false
	}
}

// floorOf returns the floor of a context for the database of c; nil: it keeps none. t is the task of ctx there; nil: it has none.
func floorOf(ctx context.Context, c *checkout, t *task.Task) *floor.Floor {
	if p, ok := c.source.config.Dialect.(dialects.Positions); ok {
		return floor.Of(ctx, t, c.source, p)
	}
	return nil
}

// owe makes op's contexts wait for the position of the primary, before op is sent: it may write, or shows what a replica may not
// have.
func owe(ctx context.Context, op *operation) {
	c := op.c
	if op.kind == preparing || !mayWrite(op) {
		return
	}
	op.Conn.Session.Owe(ctx, func(ctx context.Context) *floor.Floor { return floorOf(ctx, c, c.held.Task()) })
}

// mayWrite reports whether op may write, or serves a read in place of a replica. In a transaction that may write every statement
// may: a view can call a function.
func mayWrite(op *operation) bool {
	switch {
	case op.c.on != nil:
		return false
	case op.c.to != nil && op.c.to.why != replica.None && op.c.to.why != replica.Writes:
		return true
	case op.kind == lending:
		return true
	case op.kind != executing && op.kind != querying:
		return false
	case !op.is(textcache.OnlyReads):
		return true
	}
	return op.Conn.Session.HasTx() && !op.Conn.Session.TxOptions().ReadOnly
}

// routeEnded records that an operation has ended with err. What has failed nobody has served. A text that one replica has refused
// goes to the primary from now on, if the primary does not refuse it, too.
func routeEnded(to *route, err error) {
	switch {
	case err != nil:
		to.why = replica.None
	case to.more != nil:
		to.more.DoesMore()
	}
}

// countRead is the end of op. It counts a read that a replica may serve, if somebody has served it.
func countRead(op *operation) {
	to := op.c.to
	showed(to)
	if op.Locked() || op.Answer != nil {
		op.c.source.Replicas.Count(to.why)
	}
	*to = route{}
}

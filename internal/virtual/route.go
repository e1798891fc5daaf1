package virtual

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file sends an operation to the primary or to a replica, and records what the contexts of its writes must see.

// route is where an operation goes. At its end it is empty.
type route struct {
	at     task.Place     // of its context
	placed bool           // at is known
	why    replica.Reason // why the primary serves what a replica may serve
	fixed  replica.Reason // why it goes to the primary, whatever Pick says; Served: it need not
	failed error          // of a replica
	shows  *floor.Floor   // of a read that a replica serves; nil: it keeps none
	tries  int            // of replicas
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
	if !to.placed {
		if err := c.source.engine.FindPlace(ctx, &to.at); err != nil {
			return err
		}
		to.placed, op.Place = true, &to.at
	}
	reads, returns, writes := readsOf(ctx, op)
	server, why, err := set.Pick(ctx, replica.Op{Place: &to.at, Reads: reads, Returns: returns, Bound: c.held.Bound(), On: c.on})
	if err != nil {
		return unserved(op, why, err)
	}
	if writes && server == nil && why == replica.None {
		why = replica.Writes
	}
	to.why = why
	goTo(c, server)
	if why < replica.Writes && set.Floor(ctx, to.at.Task) != nil || server != nil && c.source.config.ReplicaMaxLag > 0 {
		op.Pace = nil // who follows in a pipeline learns no position, and may get an answer that is too late
	}
	return nil
}

// fallBack sends op to the primary, because of what has happened on a replica.
func fallBack(ctx context.Context, op *operation) error {
	op.c.to.why = op.c.to.fixed
	if op.c.to.why != replica.Refused {
		if err := op.c.source.Replicas.FallBack(ctx, op.c.to.why); err != nil {
			return unserved(op, op.c.to.why, err)
		}
	}
	goTo(op.c, nil)
	return nil
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
		returns = op.kind != preparing && asksBack(op)
		only := asks && onlyReads(op)
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

// onlyReads reports whether the text of op is known to read and do nothing else.
func onlyReads(op *operation) bool {
	judge, ok := op.c.source.config.Dialect.(dialects.ReadJudge)
	if !ok {
		return false
	}
	t, _ := op.c.look(op.Text)
	return t.OnlyReads(judge.OnlyReads)
}

// asksBack reports whether the text of op asks for what the statement before it has left in its session.
func asksBack(op *operation) bool {
	judge, ok := op.c.source.config.Dialect.(dialects.ReadJudge)
	if !ok || op.c.watcher != nil { // a sandbox has one session
		return false
	}
	t, _ := op.c.look(op.Text)
	return t.AsksBack(judge.AsksBack)
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
		t, _ := op.c.look(op.Text)
		t.DoesMore()
	case said&dialects.Conflict == 0: // with the replication, which the primary does not have
		return false
	}
	op.c.to.fixed = replica.Refused
	return true
}

// shows reports whether the replica's connection that op has got is as new as what op's context has seen, and not too late. If
// not, op goes to another server.
func shows(ctx context.Context, op *operation) bool {
	showed(op)
	if op.c.to.why > replica.Waited || op.kind == preparing {
		return true
	}
	if op.c.on.TooLate() {
		tryNext(op, replica.Late)
		return false
	}
	f := op.c.source.Replicas.Floor(ctx, op.c.held.Task())
	if f == nil {
		return true
	}
	if f.Shows(op.c.on.Server(op.Conn.Era)) {
		op.c.to.shows = f
		return true
	}
	f.Leave()
	op.c.to.fixed, op.CameBack = replica.Unknown, true
	return false
}

func showed(op *operation) {
	if op.c.to.shows != nil {
		op.c.to.shows.Showed()
		op.c.to.shows = nil
	}
}

// owe makes op's contexts wait for the position of the primary, before op is sent: it may write, or shows what a replica may not
// have.
func owe(ctx context.Context, op *operation) {
	c := op.c
	if op.kind == preparing || !mayWrite(op) {
		return
	}
	of := func(ctx context.Context) *floor.Floor {
		if set := c.source.Replicas; set != nil {
			return set.Floor(ctx, c.held.Task())
		}
		if p, ok := c.source.config.Dialect.(dialects.Positions); ok {
			return floor.Of(ctx, c.held.Task(), nil, p)
		}
		return nil
	}
	op.Conn.Session.Owe(ctx, of)
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
	case !onlyReads(op):
		return true
	}
	return op.Conn.Session.HasTx() && !op.Conn.Session.TxOptions().ReadOnly
}

// countRead is the end of op. It counts a read that a replica may serve, if somebody has served it.
func countRead(op *operation) {
	to := op.c.to
	if to == nil {
		return
	}
	showed(op)
	if op.Locked() || op.Answer != nil {
		op.c.source.Replicas.Count(to.why)
	}
	*to = route{}
}

package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// operation is one call of database/sql, with all its attempts.
type operation struct {
	effect  dialects.Effect // of its text
	known   *textcache.Text // what else is known of it; nil at the first time
	begins  bool            // it is a BeginTx
	raw     bool            // or a Raw
	args    []driver.NamedValue
	columns []string    // of the rows that it has opened
	scope   *task.Scope // of its context, where that was asked for
	real    *realConn
	sent    uint64
	said    dialects.Diagnosis // of the last error
	retried bool
	renewed int             // so often, for a statement that was stale
	ready   bool            // args are converted
	inside  bool            // in a call of the driver that has not returned
	returns bool            // database/sql gives the checkout back, also when it panics
	loose   *stmtcache.Stmt // whose arguments are being converted
	locked  bool            // it holds real's lock
	first   bool            // nothing was executed in the checkout before
}

// init begins an operation with a text of the program's.
func (t *operation) init(c *conn, query string, args []driver.NamedValue) {
	t.args = args
	if last := c.last; last != nil && last.Query == query {
		t.effect, t.known = last.Effect, last
		return
	}
	t.effect, t.known = c.connector.texts.Of(c.connector.dialect, query)
	c.last = t.known
}

// call marks the way into the driver. Its twin is finish; what comes between
// and does not return (a panic) leaves the connection marked.
func (t *operation) call() {
	t.inside = true
	t.real.running++
	if t.real.counts {
		t.sent, _ = t.real.session.Sent()
	}
}

// closes brackets what closes statements.
func (t *operation) closes(how func()) {
	t.inside = true
	t.real.running++
	how()
	t.real.running--
	t.inside = false
}

// done is deferred around every operation. In a task it unlocks the session.
//
// If the driver panicked, its connection ends here: after some panics (in a
// query, in BeginTx) database/sql never gives the checkout back, and the place
// in the pool would be lost with it. Not in a transaction: there database/sql
// still rolls back on that connection. A *sql.Conn whose session had a state, or a
// transaction by hand, has nothing to go on with: on another connection what follows
// would be something else.
func (c *conn) done(t *operation) {
	if t.loose != nil {
		t.real.stmts.Done(t.loose)
	}
	if t.inside && c.tx == nil {
		// What a task's own session has lost the task is told.
		told := t.locked && c.bound.main.Load() == t.real
		if c.executed && !leavesNothing(t.real.effect) && !told {
			c.refusal = errWrecked
		}
		if t.locked {
			t.real.broken = true
			c.bound.standDown(c, t.real)
		} else {
			c.discard()
		}
	}
	c.unlock(t)
}

// unlock unlocks the session, if the operation holds its lock.
func (c *conn) unlock(t *operation) {
	if t.locked {
		c.release(t)
	}
}

func (c *conn) release(t *operation) {
	t.locked = false
	r, b := t.real, c.bound
	// Who came too late holds the lock of a connection that is not the task's any more.
	if c.real == r && r.holder.Load() == b && r.decided(b.main.Load() == r) {
		r.seat.ops++
		if !b.yield(r) {
			return
		}
	}
	b.pass(r)
}

// decided reports whether the last statement leaves nothing to be decided by tidy:
// it changed nothing but data, on a connection that is nobody's session, or in a
// transaction that is open as before.
func (r *realConn) decided(main bool) bool {
	if !leavesNothing(r.effect) || r.broken || r.doubt {
		return false
	}
	if main {
		return r.seat.pin == pinTx && r.seat.tx != nil
	}
	return r.seat.pin == pinNone && !r.begun()
}

// endsTx reports whether an error was the end of the transaction: a deadlock on
// MySQL, a full disk on SQLite. What follows would run outside of it.
func (t *operation) endsTx(patience time.Duration) bool {
	if t.said&dialects.TxEnded != 0 && (!t.real.traits.WritesAlone || t.effect&dialects.Writes != 0) {
		return true
	}
	if t.said&dialects.TxDoubt != 0 && !t.ask(patience) {
		return true
	}
	return t.real.session.TxStatus() == dialects.TxNone
}

// ask has the server tell the state of the transaction anew.
func (t *operation) ask(patience time.Duration) (answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	t.real.running++
	err := t.real.session.Ping(ctx)
	t.real.running--
	t.real.broken = t.real.broken || err != nil
	return err == nil
}

// finish marks the way out and says whether to try again, or with which error
// to return. executes tells whether the operation may have changed data.
func (c *conn) finish(ctx context.Context, t *operation, err error, executes bool) (again bool, _ error) {
	t.inside = false
	t.real.running--
	t.said = 0
	if err == driver.ErrSkip {
		return false, err
	}
	if executes {
		t.first, c.executed = !c.executed, true
		if t.locked {
			c.runs(t.real)
		}
	}
	if err != nil {
		return c.failed(ctx, t, err, executes)
	}
	c.touched = true
	return false, nil
}

// failed is finish where the driver has returned an error.
func (c *conn) failed(ctx context.Context, t *operation, err error, executes bool) (again bool, _ error) {
	cn := c.connector
	t.said = cn.dialect.Diagnose(err)
	if t.said != 0 {
		cn.handleDiagnosis(t.real, t.said)
	}
	o := outcome{
		badConn:  errors.Is(err, driver.ErrBadConn),
		lost:     t.real.txStatus() == dialects.TxLost,
		claims:   executes && saysSafe(err),
		executes: executes,
		first:    !c.touched && (!t.locked || t.real.seat.users == 1 && t.real.seat.pin == pinNone),
		retried:  t.retried,
		expired:  ctx.Err() != nil,
	}
	if t.real.counts {
		n, _ := t.real.session.Sent()
		o.unsent = n == t.sent
	} else {
		o.trusted = !t.real.traits.BadConnUnsure
	}
	c.touched = true
	if o.badConn || o.lost {
		t.real.broken = true
	} else if t.locked && t.real.seat.tx != nil && t.endsTx(cn.config.PingTimeout) {
		// As far as can be told: a write that was interrupted before it began
		// leaves SQLite's transaction open. Who takes the connection back asks.
		t.real.seat.gone, t.real.doubt = true, true
	}
	if o.badConn && o.first && o.trusted {
		// Nobody has looked at it before, nor at the others: what ended this
		// one while it was idle may have ended them.
		cn.flushOnce(t.real.poolGeneration)
	}
	v := judge(o)
	switch {
	case v.retry:
		cn.stats.retries.Add(1)
		t.retried = true
		if t.locked {
			c.bound.standDown(c, t.real)
			c.unlock(t)
		} else {
			deferred := c.tx // of one that has begun nothing is tried again
			c.discard()
			if deferred != nil {
				deferred.again()
				c.tx = deferred
			}
		}
		return true, nil
	case v.unclear:
		err = unclear(errUnclear, err)
	}
	if err = ofContext(ctx, err); t.locked && t.real.cut.Load() { // by its task's end
		err = c.bound.task.WithEnd(err)
	}
	return false, err
}

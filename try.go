package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// try is one operation, with all its tries.
type try struct {
	effect  dialects.Effect // of its text
	known   *text           // what else is known of it; nil at the first time
	begins  bool            // it is a BeginTx
	raw     bool            // or a Raw
	args    []driver.NamedValue
	columns []string // of the rows that it has opened
	scope   *txScope // of its context, where that was asked for
	real    *realConn
	sent    uint64
	said    dialects.Diagnosis // of the last error
	retried bool
	renewed int       // so often, for a statement that was stale
	ready   bool      // args are converted
	inside  bool      // in a call of the driver that has not returned
	returns bool      // database/sql gives the checkout back, also when it panics
	loose   *realStmt // whose arguments are being converted
	turn    bool      // it has real's turn
	first   bool      // nothing was executed in the checkout before
}

// init begins an operation with a text of the program's.
func (t *try) init(c *conn, query string, args []driver.NamedValue) {
	t.args = args
	if last := c.last; last != nil && last.query == query {
		t.effect, t.known = last.effect, last
		return
	}
	t.effect, t.known = c.connector.texts.of(c.connector.dialect, query)
	c.last = t.known
}

// call marks the way into the driver. Its twin is finish; what comes between
// and does not return (a panic) leaves the connection marked.
func (t *try) call() {
	t.inside = true
	t.real.running++
	if t.real.counts {
		t.sent, _ = t.real.session.Sent()
	}
}

// closes brackets what closes statements.
func (t *try) closes(how func()) {
	t.inside = true
	t.real.running++
	how()
	t.real.running--
	t.inside = false
}

// done is deferred around every operation. In a task it ends the turn.
//
// If the driver panicked, its connection ends here: after some panics (in a
// query, in BeginTx) database/sql never gives the checkout back, and the place
// in the pool would be lost with it. Not in a transaction: there database/sql
// still rolls back on that connection. A *sql.Conn whose session had a state, or a
// transaction by hand, has nothing to go on with: on another connection what follows
// would be something else.
func (c *conn) done(t *try) {
	if t.loose != nil {
		t.real.stmts.done(t.loose)
	}
	if t.inside && c.tx == nil {
		// What a task's own session has lost the task is told.
		told := t.turn && c.bound.main.Load() == t.real
		c.wrecked = c.executed && !leavesNothing(t.real.effect) && !told
		if t.turn {
			t.real.broken = true
			c.bound.standDown(c, t.real)
		} else {
			c.discard()
		}
	}
	c.endTurn(t)
}

// endTurn gives the turn back, if the operation has it.
func (c *conn) endTurn(t *try) {
	if t.turn {
		c.giveTurn(t)
	}
}

func (c *conn) giveTurn(t *try) {
	t.turn = false
	r, b := t.real, c.bound
	// Who came too late has the turn of a connection that is not the task's any more.
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
func (t *try) endsTx(patience time.Duration) bool {
	if t.said&dialects.TxEnded != 0 && (!t.real.traits.WritesAlone || t.effect&dialects.Writes != 0) {
		return true
	}
	if t.said&dialects.TxDoubt != 0 && !t.ask(patience) {
		return true
	}
	return t.real.session.TxStatus() == dialects.TxNone
}

// ask has the server tell the state of the transaction anew.
func (t *try) ask(patience time.Duration) (answered bool) {
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
func (c *conn) finish(ctx context.Context, t *try, err error, executes bool) (again bool, _ error) {
	t.inside = false
	t.real.running--
	t.said = 0
	if err == driver.ErrSkip {
		return false, err
	}
	if executes {
		t.first, c.executed = !c.executed, true
		if t.turn {
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
func (c *conn) failed(ctx context.Context, t *try, err error, executes bool) (again bool, _ error) {
	cn := c.connector
	t.said = cn.dialect.Diagnose(err)
	if t.said != 0 {
		cn.told(t.real, t.said)
	}
	o := outcome{
		badConn:  errors.Is(err, driver.ErrBadConn),
		lost:     t.real.txStatus() == dialects.TxLost,
		executes: executes,
		first:    !c.touched && (!t.turn || t.real.seat.users == 1 && t.real.seat.pin == pinNone),
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
	} else if t.turn && t.real.seat.tx != nil && t.endsTx(cn.config.PingTimeout) {
		// As far as can be told: a write that was interrupted before it began
		// leaves SQLite's transaction open. Who takes the connection back asks.
		t.real.seat.gone, t.real.doubt = true, true
	}
	if o.badConn && o.first && o.trusted {
		// Nobody has looked at it before, nor at the others: what ended this
		// one while it was idle may have ended them.
		cn.flushOnce(t.real.epoch)
	}
	v := judge(o)
	switch {
	case v.retry:
		cn.stats.retries.Add(1)
		t.retried = true
		if t.turn {
			c.bound.standDown(c, t.real)
			c.endTurn(t)
		} else {
			promised := c.tx // of one that has begun nothing is tried again
			c.discard()
			if promised != nil {
				promised.again()
				c.tx = promised
			}
		}
		return true, nil
	case v.unclear:
		return false, errUnclear
	}
	return false, err
}

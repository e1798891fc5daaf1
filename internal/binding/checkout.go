package binding

import (
	"context"
	"database/sql"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// A checkout begins when database/sql takes a virtual connection, and ends when database/sql
// puts that connection back. The first operation of the checkout attaches a real connection.
// The real connection stays until the checkout ends, so that a *sql.Tx or *sql.Conn keeps its
// session.

// Checkout is the connection of a checkout, and what has happened in the checkout since it has
// that connection. database/sql's lock on the virtual connection protects it.
type Checkout struct {
	engine *Engine

	// seat is the lending of the real connection, and binding is whose lending it is. Both are nil
	// before the first operation.
	seat     *Seat
	binding  *Binding
	mine     *Seat         // for the next lending; nil: a new one
	scope    *task.Scope   // of InTx
	label    *string       // of the context that has attached it; nil: none
	priority pool.Priority // of its first operation, without a task
	asks     pool.Priority // of that context
	from     *task.Task    // an outer task: the statement's context was derived from its context
	touched  bool          // it has used seat: an operation cannot move to another connection
	executed bool          // it has executed a statement on seat
	parted   bool          // it has had an answer, and has the connection no more from which that came
	rows     *Rows         // that its last operation has opened
	tx       *Tx           // the innermost of its open transactions
	lent     *Seat         // to a function of Raw; nil: none
	number   uint64        // how many checkouts were made of it before

	// values is the context with which database/sql has begun the checkout; nil: none is known.
	values context.Context
}

// Init makes c a checkout of connections of e. values is the context with which database/sql
// has begun it.
func (c *Checkout) Init(e *Engine, values context.Context) {
	c.engine, c.values = e, values
}

// withoutTask makes c, which is new, a checkout without a task.
func (c *Checkout) withoutTask(label *string) { c.label, c.binding = label, &c.engine.private }

// MoveTo makes e, another engine of the group, the engine of a checkout that has no transaction. The checkout leaves the
// connection that it has; rows that are open there keep that.
func (c *Checkout) MoveTo(e *Engine) {
	if c.binding != nil {
		c.binding.detach(c)
		c.unbind()
	}
	c.engine, c.parted = e, false
}

// Take begins a checkout anew.
func (c *Checkout) Take(values context.Context) { c.values, c.parted = values, false }

// InTask reports whether the checkout, which has a binding, belongs to a task.
func (c *Checkout) InTask() bool { return c.binding.task != nil }

// Shares reports whether the checkout, which has a binding, belongs to a task whose checkouts
// share connections.
func (c *Checkout) Shares() bool { return c.binding.shares }

// HasTx reports whether the checkout has a transaction open.
func (c *Checkout) HasTx() bool { return c.tx != nil }

// Bound reports whether the checkout has had an operation.
func (c *Checkout) Bound() bool { return c.binding != nil }

// Binding is the binding of the checkout, nil before its first operation.
func (c *Checkout) Binding() *Binding { return c.binding }

// Executed reports whether the checkout has executed a statement on its connection.
func (c *Checkout) Executed() bool { return c.executed }

// WasTakenBack reports whether rows of the checkout were read into memory, their connection was
// taken back, and nothing was executed on another one since.
func (c *Checkout) WasTakenBack() bool { return c.parted && !c.executed }

// Task and Label say whose the checkout is. Either may be nil.
func (c *Checkout) Task() *task.Task { return c.binding.task }
func (c *Checkout) Label() *string   { return c.label }

// Touched returns whether something has happened on the connection, and SetTouched stores it.
func (c *Checkout) Touched() bool           { return c.touched }
func (c *Checkout) SetTouched(touched bool) { c.touched = touched }

// OnMain reports whether the operation w runs on the session of the checkout's task.
func (c *Checkout) OnMain(w *Want) bool { return c.binding.main.Load() == w.seat }

// Alone reports whether nothing has happened in the checkout on its connection, and nobody else uses
// that, or has cut it: its server is silent, on another connection, too.
func (c *Checkout) Alone(w *Want) bool {
	b := c.binding
	return !c.touched && !w.Conn.Session.Severed() && (b.isPrivate() || b.users(w.seat) == 1 && !w.seat.pin.KeepsTask())
}

// SharesState reports whether another checkout uses the seat of c, too.
func (c *Checkout) SharesState() bool {
	return !c.binding.isPrivate() && c.binding.users(c.seat) > 1
}

// WithTaskEnd adds the end of the task to err, if that end has cut r's connection.
func (c *Checkout) WithTaskEnd(r *connpool.Conn, err error) error {
	return c.binding.withTaskEnd(r, err)
}

func (b *Binding) withTaskEnd(r *connpool.Conn, err error) error {
	if err != nil && b.task != nil && b.ended.Load() && r.Session.Severed() {
		return b.task.WithEnd(err)
	}
	return err
}

// Reach finds the session for an operation, and locks it. A goroutine that waits for a connection waits in
// Reach: what is not needed by then is in functions that have returned, so that the stack stays small.
func (c *Checkout) Reach(ctx context.Context, w *Want) error {
	switch b := c.binding; {
	case b == nil && c.tx != nil:
		return c.attachDeferred(ctx, w)
	case b == nil:
		if err := c.place(ctx, w); err != nil {
			return err
		}
		if c.binding != nil {
			return c.enterTask(ctx, w)
		}
		return c.borrow(ctx, w)
	case b.isPrivate():
		return c.enter(ctx, w)
	}
	c.findScope(ctx, w)
	return c.binding.enter(ctx, c, w)
}

// enterTask is Reach for the first operation of a checkout in a task.
func (c *Checkout) enterTask(ctx context.Context, w *Want) error {
	err := c.binding.enter(ctx, c, w)
	if err != nil && c.seat == nil {
		c.unbind()
	}
	return err
}

// findScope finds the InTx of an operation in a task. On a *sql.Conn, the context of this operation may be
// a context of InTx, although that of the last one was not.
func (c *Checkout) findScope(ctx context.Context, w *Want) {
	b := c.binding
	if c.tx != nil || !b.shares {
		return
	}
	var p task.Place
	switch err := c.findPlace(ctx, w, &p); {
	case err == nil && p.Task == b.task:
		c.scope, w.Scope = p.Scope, p.Scope
	case c.scope.Left():
		c.scope = nil
	}
}

// enter is Reach for a checkout without a task that has attached a connection. The
// checkout may have lost that connection: when others waited, its rows were read into
// memory, and the connection was taken back.
func (c *Checkout) enter(ctx context.Context, w *Want) error {
	s, rows := c.seat, c.rows
	c.rows = nil
	if s == nil || rows != nil && rows.Rows.Detached() {
		return c.attachAgain(ctx, w)
	}
	if err := s.lock.Lock(ctx); err != nil {
		c.rows = rows
		return err
	}
	if rows != nil {
		rows.Rows.Attach()
	}
	if s.conn.Load() == nil {
		s.lock.Unlock()
		return c.attachAgain(ctx, w)
	}
	w.has(s, false)
	if w.Conn.Session.TxLost() {
		return w.Conn.Session.LostTx()
	}
	if rows != nil || w.Conn.Session.Traits().BadConnUnsure {
		// If a context has ended, the driver may return ErrBadConn for a healthy connection.
		return ctx.Err()
	}
	return nil
}

// MakeWay is called before a statement with this effect runs on r.
func (c *Checkout) MakeWay(r *connpool.Conn, effect dialects.Effect) {
	if effect&dialects.Writes != 0 && r.Session.Traits().RowsBlockWrites {
		c.engine.starvation.makeWay(r)
	}
}

// attachAgain is Reach for a checkout whose connection was taken back.
func (c *Checkout) attachAgain(ctx context.Context, w *Want) error {
	c.part()
	c.binding, w.reclaimed = nil, true
	return c.Reach(ctx, w)
}

// findPlace is Engine.FindPlace, which may be a function of the program, once for an operation.
func (c *Checkout) findPlace(ctx context.Context, w *Want, p *task.Place) error {
	if w.Place != nil {
		*p = *w.Place
		return nil
	}
	return c.engine.FindPlace(ctx, p)
}

// place finds the task of a checkout's first operation. It sets the binding if there is a task, and
// otherwise admits the operation to a connection of its own.
func (c *Checkout) place(ctx context.Context, w *Want) error {
	e := c.engine
	var p task.Place
	if err := c.findPlace(ctx, w, &p); err != nil {
		return err
	}
	p.Scope.Reach()
	if p.Scope.Left() {
		return sql.ErrTxDone
	}
	w.Scope, c.scope, c.label, c.asks, c.from = p.Scope, p.Scope, p.Label, p.Priority, p.From
	if p.Task != nil {
		b, err := e.bindTo(p.Task)
		if c.binding = b; b != nil {
			b.checkouts.Add(1)
		}
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.reclaimed = w.reclaimed || c.parted // perhaps by an answer from another one's connection
	if !w.goesOn() && !e.admits(nil, p.From) {
		return e.pool.DrainingError()
	}
	c.priority = c.priorityOf(w, nil)
	return nil
}

// borrow attaches a connection of the pool without a task.
func (c *Checkout) borrow(ctx context.Context, w *Want) (err error) {
	var r *connpool.Conn
	var waited time.Duration
	switch {
	case w.Pace != nil && c.from == nil && c.tx == nil && ctxsettings.Of(ctx) == nil:
		r, waited, err = acquireOrFollow(ctx, c, w)
		if w.Answer != nil {
			return nil
		}
	case c.from == nil:
		r, waited, err = c.engine.acquire(c.forHooks(ctx), c.label, c.priority)
	default:
		r, waited, err = c.engine.acquireBeside(c.forHooks(ctx), c.from, c.label, c.priority)
	}
	if err != nil {
		return c.notAcquired(ctx, waited, err)
	}
	c.binding = &c.engine.private
	return c.attachFor(ctx, w, r)
}

// attachFor is attach for the operation w.
func (c *Checkout) attachFor(ctx context.Context, w *Want, r *connpool.Conn) error {
	if err := c.binding.attach(ctx, c, r, w.TextAt, w.pins()); err != nil {
		return err
	}
	w.has(c.seat, false)
	w.isMeasured()
	return nil
}

// priorityOf is that of an operation which needs a connection. Operations that have begun are not refused, nor
// those of a task that holds a connection, for which others may wait, or has open rows. b is nil without a task.
func (c *Checkout) priorityOf(w *Want, b *Binding) pool.Priority {
	switch e := c.engine; {
	case e.config.QueueTarget == 0:
		return pool.PriorityNormal
	case w.goesOn() || e.serves(b, c.from):
		return pool.PriorityHigh
	}
	return c.asks
}

// TakeAnswer makes rows, which are new or recycled, those of the answer.
func (c *Checkout) TakeAnswer(rows *Rows, a *session.Answer) error {
	c.parted = true
	if a.Err != nil {
		return a.Err
	}
	rows.seat, rows.checkout, rows.binding, rows.closed = nil, c, &c.engine.private, false
	rows.Rows.Answered(a)
	return nil
}

// notAcquired reports a statement of c that has waited and got no connection, and returns err.
func (c *Checkout) notAcquired(ctx context.Context, waited time.Duration, err error) error {
	var t *task.Task
	if c.binding != nil {
		t = c.binding.task
	}
	c.engine.report.NotAcquired(ctx, waited, func() report.Who { return WhoIs(c.label, t) }, err)
	return err
}

// attachDeferred is Reach for the first statement of a deferred transaction without a task. The
// transaction stays without a task, even if the statement's context carries a task.
// If the statement gets no connection, the transaction fails for good: otherwise the
// program could commit later statements without this one.
func (c *Checkout) attachDeferred(ctx context.Context, w *Want) error {
	t := c.tx
	if err := t.Tx.Refused(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, merged := mergedctx.New(t.Tx.Context(), ctx)
	defer merged.Release()
	place := task.PlaceOf(t.Tx.Context())
	c.label, c.asks, c.from = place.Label, place.Priority, place.From
	c.priority = c.priorityOf(w, nil)
	err := ctxerr.Of(both, c.borrow(both, w))
	t.attached(w, c.binding, err)
	return err
}

// freeSeat returns a locked seat for a lending to c. It is the one of c's last lending, if nobody else has
// had a claim on it and nobody looks at it.
func (c *Checkout) freeSeat() *Seat {
	s := c.mine
	switch {
	case s == nil:
	case !s.lock.TryLock():
		s = nil
	case s.conn.Load() != nil: // somebody has just looked, and is about to end the lending
		s.unlockAlone()
		s = nil
	}
	if s == nil {
		s = new(Seat)
		s.self = s
		s.lock.TryLock()
	}
	c.mine = s
	return s
}

// hold makes s the seat of the checkout, which has not used s yet. With nil the
// checkout has none.
func (c *Checkout) hold(s *Seat) { c.seat, c.touched, c.executed = s, false, false }

// share makes s, which others have used, the seat of the checkout. executed: the checkout
// counts as one that has executed a statement on s.
func (c *Checkout) share(s *Seat, executed bool) {
	c.seat, c.touched, c.executed = s, true, executed
}

// letGo takes the seat from the checkout, with the rows that it has opened there. The seat is not used
// again.
func (c *Checkout) letGo() (s *Seat, open *Rows) {
	s, open = c.seat, c.rows
	c.hold(nil)
	c.rows, c.mine = nil, nil
	return s, open
}

// part takes the connection from the checkout, whose rows are in memory. Others of its task may use the
// seat by now.
func (c *Checkout) part() {
	c.hold(nil)
	c.parted, c.mine = true, nil
}

// partFromRows takes the connection from the checkout, if the checkout's rows are in memory and
// nothing else needs the connection. The connection may belong to another borrower, so
// partFromRows does not wait for its lock.
func (c *Checkout) partFromRows() {
	if rows := c.rows; rows != nil && rows.Rows.Buffer() != nil {
		c.rows = nil
		if rows.Rows.Detached() {
			c.part()
		}
	}
}

// reattach uses s, under its lock, beside the rows that are open on s. It reports false if the
// checkout has parted from s.
func (c *Checkout) reattach(s *Seat) bool {
	if c.rows == nil || c.seat != s {
		return true
	}
	c.rows.Rows.Attach()
	if !c.rows.Rows.Detached() {
		return true
	}
	c.rows = nil
	c.part()
	return false
}

// Ran records, under the lock, that the checkout has run a statement on the connection of w.
func (c *Checkout) Ran(w *Want) {
	c.executed = true
	if w.Conn.Session.Depth() > 0 {
		if own := c.own(w.seat); own != nil {
			own.Tx.Ran()
		}
	}
}

// own returns the transaction on s to which an operation of c belongs: the one that c has
// begun, or that of the InTx in whose scope c was attached.
func (c *Checkout) own(s *Seat) *Tx {
	if c.tx != nil && c.tx.seat == s {
		return c.tx
	}
	if tx := c.binding.transactionOf(c.scope); tx != nil && tx.seat == s {
		return tx
	}
	return nil
}

// Detach ends the checkout. A clean connection can be lent again at once. Rollback and
// cleaning happen in the background, and the connection counts as active until they end.
func (c *Checkout) Detach() {
	if s := c.seat; c.binding == &c.engine.private && s != nil && c.rows == nil && c.tx == nil && c.from == nil {
		c.seat, c.binding = nil, nil
		s.leaveAlone()
	} else {
		if c.binding != nil {
			c.binding.detach(c)
		}
		c.unbind()
	}
	c.parted, c.values = false, nil
	c.number++
}

// turn is the present use of c.
func (c *Checkout) turn() turn { return turn{c, c.number} }

// Open makes rows, which are new or recycled, those of the query st, which has just run in the
// operation. isFirst: nothing was executed in the checkout before. Others can take the session from its
// checkout when the rows are in memory, if the checkout has done nothing else, and has left nothing on the
// session. A statement that is only prepared may leave something (Traits.PreparingActs).
func (c *Checkout) Open(rows *Rows, st *session.Statement, isFirst bool) {
	r := c.seat.conn.Load()
	rows.seat, rows.checkout, rows.binding, rows.closed = c.seat, c, c.binding, false
	c.rows = rows
	if !c.binding.isPrivate() {
		c.binding.open.Add(1)
	}
	r.Session.OpenRows(&rows.Rows, st, isFirst && c.tx == nil && session.LeavesNothing(r.Session.Effect()))
	if r.Meter.TellsSlow() {
		r.Meter.OpenRows()
	}
}

// hookContext is the context that the driver's own hooks (connect, ResetSession) get. It ends
// with the borrower's statement. As over the bare driver, it has the values of the context with
// which database/sql has taken the connection.
type hookContext struct {
	context.Context // the statement's
	values          context.Context
}

func (h hookContext) Value(key any) any { return h.values.Value(key) }

// forHooks is the context that the driver's hooks get: it ends with ctx, and has the values of the
// context with which database/sql has taken the virtual connection.
func (c *Checkout) forHooks(ctx context.Context) context.Context {
	if c.values == nil || mergedctx.IsSame(&ctx, &c.values) {
		return ctx
	}
	return &hookContext{ctx, c.values}
}

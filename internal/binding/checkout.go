package binding

import (
	"context"
	"database/sql"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/observe/report"
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
	mine     *Seat         // the seat for the next lending; nil: a new one is made
	scope    *task.Scope   // the InTx whose context the statement has; nil: none
	label    *string       // the label of the context that attached the checkout; nil: none
	priority pool.Priority // the priority of its first operation, if it has no task
	asks     pool.Priority // the priority that the context asks for
	placed   bool          // scope, label, asks or from may be set
	from     *task.Task    // an outer task: the statement's context was derived from its context
	progress progress      // what the checkout has done on seat
	// takenBack: the connection of its last answer is others', and nothing was executed on another one since.
	takenBack bool
	rows      *Rows  // that its last operation has opened
	tx        *Tx    // the innermost of its open transactions
	lent      *Seat  // to a function of Raw; nil: none
	number    uint64 // how many checkouts have used this object before

	// values is the context with which database/sql has begun the checkout; nil: none is known.
	values context.Context
}

// progress is what a checkout has done on its connection.
type progress uint8

const (
	fresh    progress = iota
	touched           // something was done, so no operation can move to another connection
	executed          // a statement was executed
)

// Init makes c a checkout of connections of e. values is the context with which database/sql
// has begun it.
func (c *Checkout) Init(e *Engine, values context.Context) {
	c.engine, c.values = e, values
}

// withoutTask makes c, which is new, a checkout without a task.
func (c *Checkout) withoutTask(label *string) {
	c.label, c.placed, c.binding = label, true, &c.engine.private
}

// MoveTo makes e, another engine of the group, the engine of a checkout that has no transaction. The checkout leaves the
// connection that it has; rows that are open there keep that.
func (c *Checkout) MoveTo(e *Engine) {
	c.leaveSeat()
	c.unbind()
	c.engine, c.takenBack = e, false
}

// Take begins a checkout anew.
func (c *Checkout) Take(values context.Context) { c.values, c.takenBack = values, false }

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
func (c *Checkout) Executed() bool { return c.progress == executed }

// WasTakenBack reports whether rows of the checkout were read into memory, their connection was
// taken back, and nothing was executed on another one since.
func (c *Checkout) WasTakenBack() bool { return c.takenBack }

// Task and Label say whose the checkout is. Either may be nil.
func (c *Checkout) Task() *task.Task { return c.binding.task }
func (c *Checkout) Label() *string   { return c.label }

// Touched reports whether something has happened on the connection.
func (c *Checkout) Touched() bool { return c.progress >= touched }

// Touch records that something has happened on the connection.
func (c *Checkout) Touch() { c.progress = max(c.progress, touched) }

// Untouch takes Touch back: nothing was sent.
func (c *Checkout) Untouch() { c.progress = fresh }

// OnMain reports whether the operation w runs on the session of the checkout's task.
func (c *Checkout) OnMain(w *Want) bool { return c.binding.main.Load() == w.seat }

// Alone reports whether nothing has happened in the checkout on its connection, and nobody else uses
// that, or has cut it: its server is silent, on another connection, too.
func (c *Checkout) Alone(w *Want) bool {
	return c.progress == fresh && !w.Conn.Session.Severed() && w.seat.users.Load() == 1 && !w.seat.pin.KeepsTask()
}

// SharesState reports whether another checkout uses the seat of c, too. An operation of c has its lock.
func (c *Checkout) SharesState() bool {
	return c.seat.users.Load() > 1
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

// enterTask finds and locks a connection for the first operation of a checkout in a task.
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

// enter locks the connection that a checkout without a task has. The
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
	w.has(s, none)
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

// attachAgain finds a connection for a checkout whose connection was taken back.
func (c *Checkout) attachAgain(ctx context.Context, w *Want) error {
	c.detachSeat()
	c.binding = nil
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
	if c.placed || !p.IsNone() {
		if done, err := c.settle(w, &p); done {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !c.goesOn(w) && !e.admits(nil, p.From) {
		return e.pool.DrainingError()
	}
	c.priority = c.priorityOf(w, nil)
	return nil
}

// settle finds the binding from what the context says of tasks (p). done: nothing else is to be asked.
func (c *Checkout) settle(w *Want, p *task.Place) (done bool, err error) {
	p.Scope.Reach()
	if p.Scope.Left() {
		return true, sql.ErrTxDone
	}
	c.arrives(w, p.Label)
	c.placed = !p.IsNone()
	w.Scope, c.scope, c.label, c.asks, c.from = p.Scope, p.Scope, p.Label, p.Priority, p.From
	if p.Task == nil {
		return false, nil
	}
	if c.binding, err = c.engine.bindTo(p.Task); c.binding != nil {
		c.binding.checkouts.Add(1)
	}
	return true, err
}

// arrives counts the first operation of a checkout, if it has a label.
func (c *Checkout) arrives(w *Want, label *string) {
	if label != nil && !c.goesOn(w) {
		c.engine.report.Arrived(*label)
	}
}

// borrow attaches a connection of the pool without a task.
func (c *Checkout) borrow(ctx context.Context, w *Want) (err error) {
	var r *connpool.Conn
	var waited time.Duration
	switch {
	case w.Pace != nil && c.from == nil && c.tx == nil:
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

// attachFor takes a connection for the operation w.
func (c *Checkout) attachFor(ctx context.Context, w *Want, r *connpool.Conn) error {
	if err := c.binding.attach(ctx, c, r, w.TextAt, w.pins()); err != nil {
		return err
	}
	w.has(c.seat, none)
	w.isMeasured()
	return nil
}

// goesOn reports whether the operation has had a connection before, or its checkout has lost one to others. Drain does
// not refuse such an operation.
func (c *Checkout) goesOn(w *Want) bool { return w.Retried || w.CameBack || c.takenBack }

// priorityOf returns the priority with which an operation waits for a connection. Operations that have begun are not refused, nor
// those of a task that holds a connection, for which others may wait, or has open rows. b is nil without a task.
func (c *Checkout) priorityOf(w *Want, b *Binding) pool.Priority {
	switch e := c.engine; {
	case e.config.QueueTarget == 0:
		return pool.PriorityNormal
	case c.goesOn(w) || e.serves(b, c.from):
		return pool.PriorityHigh
	}
	return c.asks
}

// TakeAnswer makes rows, which are new or recycled, those of the answer.
func (c *Checkout) TakeAnswer(rows *Rows, a *session.Answer) error {
	c.takenBack = true
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

// attachDeferred finds a connection for the first statement of a deferred transaction without a task. The
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
	c.label, c.asks, c.from, c.placed = place.Label, place.Priority, place.From, true
	c.arrives(w, place.Label)
	c.priority = c.priorityOf(w, nil)
	err := session.BeginError(ctxerr.Of(both, c.borrow(both, w)))
	t.attached(w, c.binding, err)
	return err
}

// freeSeat returns a locked seat for a lending to c. It is the one of c's last lending, if nobody else has
// had a claim on it and nobody looks at it.
func (c *Checkout) freeSeat() *Seat {
	s := c.mine
	if s == nil || !s.lock.TryLock() {
		s = new(Seat)
		s.self = s
		s.lock.TryLock()
	}
	c.mine = s
	return s
}

// hold makes s the seat of the checkout, which has not used s yet. With nil the
// checkout has none.
func (c *Checkout) hold(s *Seat) { c.seat, c.progress = s, fresh }

// share makes s, on which other operations have run, the seat of the checkout. done is the progress of the checkout
// on s.
func (c *Checkout) share(s *Seat, done progress) {
	c.seat, c.progress = s, done
	c.takenBack = c.takenBack && done != executed
}

// letGo takes the seat from the checkout, with the rows that it has opened there. The seat is not used
// again.
func (c *Checkout) letGo() (s *Seat, open *Rows) {
	s, open = c.seat, c.rows
	c.hold(nil)
	c.rows, c.mine = nil, nil
	return s, open
}

// detachSeat takes the connection from the checkout, whose rows are in memory. Others of its task may use the
// seat by now.
func (c *Checkout) detachSeat() {
	c.hold(nil)
	c.takenBack, c.mine = true, nil
}

// partFromRows takes the connection from the checkout, if the checkout's rows are in memory and
// nothing else needs the connection. The connection may belong to another borrower, so
// partFromRows does not wait for its lock.
func (c *Checkout) partFromRows() {
	if rows := c.rows; rows != nil && rows.Rows.Buffer() != nil {
		c.rows = nil
		if rows.Rows.Detached() {
			c.detachSeat()
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
	c.detachSeat()
	return false
}

// Ran records, under the lock, that the checkout has run a statement on the connection of w.
func (c *Checkout) Ran(w *Want) {
	c.progress, c.takenBack = executed, false
	if w.Conn.Session.Depth() > 0 {
		if own := c.txOn(w.seat); own != nil {
			own.Tx.Ran()
		}
	}
}

// txOn returns the transaction on s to which an operation of c belongs: the one that c has
// begun, or that of the InTx in whose scope c was attached.
func (c *Checkout) txOn(s *Seat) *Tx {
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
	c.leaveSeat()
	c.unbind()
	c.takenBack, c.values = false, nil
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

package binding

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"unsafe"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
)

// A checkout begins when database/sql takes a virtual connection, and ends when database/sql
// puts that connection back. The first operation of the checkout attaches a real connection.
// The real connection stays until the checkout ends, so that a *sql.Tx or *sql.Conn keeps its
// session.

// Checkout is the connection of a checkout, and what has happened in the checkout since it has
// that connection. database/sql's lock on the virtual connection protects it.
type Checkout struct {
	engine  *Engine
	private Binding // the binding of checkouts without a task

	// conn is the attached connection, and binding is the binding that has conn. Both are nil
	// before the first operation.
	conn     *Conn
	binding  *Binding
	scope    *task.Scope // of InTx
	label    *string     // of the context that has attached conn; nil: none
	from     *task.Task  // the outer task from whose context the statement's context was derived
	touched  bool        // the checkout has used conn: an operation cannot move to another connection
	executed bool        // the checkout has executed a statement on conn
	parted   bool        // rows were read into memory and conn, on which they were opened, was taken back
	rows     *Rows       // the rows that its last operation has opened
	tx       *Tx         // the innermost of its open transactions
	lent     *Conn       // the connection that a function of Raw has; nil: none
	number   uint64      // how many checkouts have used this struct before

	// values is the context with which database/sql has begun the checkout; nil: none is known.
	values context.Context
}

// Want describes what an operation needs of a binding, and what the operation has got.
type Want struct {
	session.Statement         // the operation's statement, if there is a text
	TextAt            *string // Text, for Holders; nil: there is none
	Begins            bool    // the operation begins a transaction
	Lends             bool    // the operation is for a function of Raw

	Conn      *Conn       // the connection that the operation uses
	Scope     *task.Scope // of the operation's context, if the scope was looked up
	Retried   bool        // the operation has left a dead connection
	counted   *Conn       // the connection whose meter has counted the operation
	reclaimed bool        // the connection of the checkout was taken back for others
	locked    bool        // the operation has the lock of Conn
	peeks     bool        // Conn's binding counts the operation in use.peeks
	measured  bool        // Conn's meter measures the operation
	joined    func()      // warns that the operation has joined a transaction; nil: no warning is due
}

// Init makes c a checkout of connections of e. values: the context with which database/sql has
// begun the checkout.
func (c *Checkout) Init(e *Engine, values context.Context) {
	c.engine, c.private.engine, c.values = e, e, values
}

// Take begins the next checkout of c.
func (c *Checkout) Take(values context.Context) { c.values = values }

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

// Task and Label return the task and the label of the checkout. Either may be nil.
func (c *Checkout) Task() *task.Task { return c.binding.task }
func (c *Checkout) Label() *string   { return c.label }

// Touched returns whether something has happened on the connection, and SetTouched stores it.
func (c *Checkout) Touched() bool           { return c.touched }
func (c *Checkout) SetTouched(touched bool) { c.touched = touched }

// MainIs reports whether r is the session of the checkout's task.
func (c *Checkout) MainIs(r *Conn) bool { return c.binding.main.Load() == r }

// Alone reports whether nothing has happened in the checkout on r, and nobody else uses r.
func (c *Checkout) Alone(r *Conn) bool {
	return !c.touched && c.binding.users(r) == 1 && !r.use.pin.KeepsTask()
}

// SharedState reports whether another checkout uses r, too.
func (c *Checkout) SharedState(r *Conn) bool { return c.binding.users(r) > 1 }

// WithTaskEnd adds the end of the task to err, if that end has cut r's connection.
func (c *Checkout) WithTaskEnd(r *Conn, err error) error { return c.binding.withTaskEnd(r, err) }

func (b *Binding) withTaskEnd(r *Conn, err error) error {
	if err != nil && b.task != nil && r.Severed() {
		return b.task.WithEnd(err)
	}
	return err
}

// Reach finds the session for an operation, and locks it.
func (c *Checkout) Reach(ctx context.Context, w *Want) error {
	b := c.binding
	switch {
	case b == nil:
		return c.attach(ctx, w)
	case b.isPrivate():
		return c.enter(ctx, w)
	}
	if c.tx == nil && b.shares {
		// On a *sql.Conn, this statement's context may be a context of InTx, although the last
		// statement's context was not.
		var p task.Place
		switch err := c.engine.FindPlace(ctx, &p); {
		case err == nil && p.Task == b.task:
			c.scope, w.Scope = p.Scope, p.Scope
		case c.scope.Left():
			c.scope = nil
		}
	}
	return b.enter(ctx, c, w)
}

// enter is Reach for a checkout without a task that has attached a connection. The
// checkout may have lost that connection: when others waited, its rows were read into
// memory, and the connection was taken back.
func (c *Checkout) enter(ctx context.Context, w *Want) error {
	r, rows := c.conn, c.rows
	c.rows = nil
	if rows != nil && rows.Detached() {
		r = nil // the connection may belong to another borrower: do not wait for its lock
	}
	if r == nil {
		return c.attachAgain(ctx, w)
	}
	if err := c.lockOwn(ctx); err != nil {
		c.rows = rows
		return err
	}
	if rows != nil {
		rows.Attach()
		if rows.Detached() {
			r.unlock()
			return c.attachAgain(ctx, w)
		}
	}
	w.has(r)
	if rows != nil || r.Traits().BadConnUnsure {
		// If a context has ended, the driver may return ErrBadConn for a healthy connection.
		return ctx.Err()
	}
	return nil
}

// MakeWay is called before a statement with this effect runs on r.
func (c *Checkout) MakeWay(r *Conn, effect dialects.Effect) {
	if effect&dialects.Writes != 0 && r.Traits().RowsBlockWrites {
		c.engine.starvation.makeWay(r)
	}
}

// lockOwn locks the connection of a checkout without a task. The checkout's own claim keeps the
// connection in the checkout's binding.
func (c *Checkout) lockOwn(ctx context.Context) error { return c.conn.Lock(ctx) }

// attachAgain is attach for a checkout whose connection was taken back.
func (c *Checkout) attachAgain(ctx context.Context, w *Want) error {
	c.part()
	c.binding, w.reclaimed = nil, true
	return c.attach(ctx, w)
}

// attach is Reach for the first operation of a checkout.
func (c *Checkout) attach(ctx context.Context, w *Want) error {
	if c.tx != nil {
		return c.attachDeferred(ctx, w)
	}
	var p task.Place
	if err := c.engine.FindPlace(ctx, &p); err != nil {
		return err
	}
	if p.Scope.Left() {
		return sql.ErrTxDone
	}
	w.Scope, c.label = p.Scope, p.Label
	if p.Task != nil {
		b, err := c.engine.bindTo(p.Task)
		if err != nil {
			return err
		}
		c.binding, c.scope, c.from = b, p.Scope, p.From
		if err := b.enter(ctx, c, w); err != nil {
			if c.conn == nil {
				c.unbind()
			}
			return err
		}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !w.goesOn() && !c.engine.admits(nil, p.From) {
		return c.engine.pool.DrainingError()
	}
	return c.borrow(ctx, w, p.From)
}

// borrow attaches a connection of the pool without a task.
func (c *Checkout) borrow(ctx context.Context, w *Want, from *task.Task) error {
	r, waited, err := c.engine.acquireFrom(c.forHooks(ctx), from, c.label)
	if err != nil {
		return c.engine.notAcquired(ctx, c.label, nil, waited, err)
	}
	c.binding = &c.private
	return c.private.attachFor(ctx, c, w, r)
}

// attachDeferred is attach for the first statement of a deferred transaction without a task. The
// transaction stays without a task, even if the statement's context carries a task.
// If the statement gets no connection, the transaction fails for good: otherwise the
// program could commit later statements without this one.
func (c *Checkout) attachDeferred(ctx context.Context, w *Want) error {
	t := c.tx
	if err := t.Refused(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, merged := mergedctx.New(t.Context(), ctx)
	defer merged.Release()
	place := task.PlaceOf(t.Context())
	c.label = place.Label
	err := ctxerr.Of(both, c.borrow(both, w, place.From))
	t.attached(w.Conn, c.binding, err)
	return err
}

// goesOn reports whether the operation has had a connection before. Drain does not refuse such
// an operation.
func (w *Want) goesOn() bool { return w.Retried || w.reclaimed }

// has records that the operation has locked r.
func (w *Want) has(r *Conn) { w.Conn, w.locked = r, true }

// Continue moves w from the short way to the long way, on r, which Borrow or Again has locked.
func (w *Want) Continue(r *Conn) { w.Conn, w.locked, w.measured, w.counted = r, true, true, r }

// Locked reports whether the operation has its connection's lock.
func (w *Want) Locked() bool { return w.locked }

// pins reports whether the operation is known to hold its connection after its end.
func (w *Want) pins() bool {
	return w.Begins || w.Lends || session.NeedsSession(w.Effect)
}

// Measure begins to measure an attempt on a connection that was attached before. Unlock ends
// that.
func (w *Want) Measure() {
	if !w.measured {
		w.measure()
	}
}

func (w *Want) measure() {
	r := w.Conn
	w.measured = true
	r.Meter.BeginOperation(w.TextAt, w.Begins || r.Begun(), w.counted == r)
	w.counted = r
}

// hold makes r the connection of the checkout, which has not used r yet. With nil the
// checkout has no connection.
func (c *Checkout) hold(r *Conn) { c.conn, c.touched, c.executed = r, false, false }

// share makes r, which others have used, the connection of the checkout. executed: the checkout
// counts as one that has executed a statement on r.
func (c *Checkout) share(r *Conn, executed bool) {
	c.conn, c.touched, c.executed = r, true, executed
}

// letGo takes the connection from the checkout, with the rows that the checkout has opened there.
func (c *Checkout) letGo() (r *Conn, open *Rows) {
	r, open = c.conn, c.rows
	c.hold(nil)
	c.rows = nil
	return r, open
}

// part takes the connection from the checkout, whose rows are in memory.
func (c *Checkout) part() {
	c.hold(nil)
	c.parted = true
}

// partFromRows takes the connection from the checkout, if the checkout's rows are in memory and
// nothing else needs the connection. The connection may belong to another borrower, so
// partFromRows does not wait for its lock.
func (c *Checkout) partFromRows() {
	if rows := c.rows; rows != nil && rows.Buffer() != nil {
		c.rows = nil
		if rows.Detached() {
			c.part()
		}
	}
}

// reattach uses r, under its lock, beside the rows that are open on r. It reports false if the
// checkout has parted from r.
func (c *Checkout) reattach(r *Conn) bool {
	if c.rows == nil || c.conn != r {
		return true
	}
	c.rows.Attach()
	if !c.rows.Detached() {
		return true
	}
	c.rows = nil
	c.part()
	return false
}

// Ran records, under r's lock, that the checkout has run a statement on r.
func (c *Checkout) Ran(r *Conn) {
	c.executed = true
	if r.Depth() > 0 {
		if own := c.own(r); own != nil {
			own.Ran()
		}
	}
}

// own returns the transaction on r to which an operation of c belongs: the transaction that c has
// begun, or the transaction of the InTx in whose scope c was attached.
func (c *Checkout) own(r *Conn) *Tx {
	if c.tx != nil && c.tx.conn == r {
		return c.tx
	}
	if tx := c.binding.transactionOf(c.scope); tx != nil && tx.conn == r {
		return tx
	}
	return nil
}

// Detach ends the checkout. A clean connection can be lent again at once. Rollback and
// cleaning happen in the background, and the connection counts as active until they end.
func (c *Checkout) Detach() {
	if c.binding == &c.private && c.conn != nil && c.rows == nil && c.tx == nil {
		c.leave()
	} else {
		if c.binding != nil {
			c.binding.detach(c)
		}
		c.unbind()
	}
	c.parted, c.values = false, nil
	c.number++
}

// leave is Detach for a checkout without a task, a transaction and open rows.
func (c *Checkout) leave() {
	r := c.conn
	c.conn, c.binding = nil, nil
	c.private.leave(r, &r.use.users)
}

// turn is the present use of c.
func (c *Checkout) turn() turn { return turn{c, c.number} }

func (c *Checkout) unbind() {
	c.binding, c.scope, c.from, c.tx = nil, nil, nil, nil
}

// Discard ends the checkout and the real connection with it.
func (c *Checkout) Discard() {
	b, r := c.binding, c.conn
	if r != nil && !c.parts() && b.take(r) {
		r.MarkUnusable()
		b.untake(r)
	}
	c.Detach()
}

// parts reports whether the checkout's rows are in memory, and their connection may have another
// borrower.
func (c *Checkout) parts() bool { return c.rows != nil && c.rows.Detached() }

// Idle reports whether the checkout has a connection and has left nothing on it: no transaction,
// no rows, no state.
func (c *Checkout) Idle() bool {
	b, r := c.binding, c.conn
	if b == nil || r == nil || c.tx != nil || c.lent != nil || !b.take(r) {
		return false
	}
	idle := !r.Reading() && (b.shares || !r.pin().KeepsTask() && session.LeavesNothing(r.Effect()))
	b.untake(r)
	return idle
}

// Disown closes the statements that o has prepared on the checkout's connection, if the checkout
// has a connection and nobody works on the connection.
func (c *Checkout) Disown(o *stmtcache.Owner) error {
	b, r := c.binding, c.conn
	if r == nil || c.parts() || !b.tryPeek(r) {
		return nil
	}
	defer b.endPeek(r) // also after a panic of the driver
	return r.Disown(o)
}

// StandDown ends the checkout's use of w's connection, under the connection's lock. Until Done, w
// peeks at the connection. Other users of the connection stay.
func (c *Checkout) StandDown(w *Want) {
	c.binding.standDown(w.Conn)
	w.peeks = true
	c.letGo()
}

// MoveOn takes the checkout off a dead session, so that the operation can try another one. If the
// checkout's transaction was deferred and has not begun, it is deferred again. MoveOn unlocks the
// connection. The caller has to call Done afterwards.
func (c *Checkout) MoveOn(w *Want) {
	w.Retried = true
	c.engine.unattached.Add(1) // until Done
	b, deferred := c.binding, c.tx
	c.StandDown(w)
	c.Unlock(w)
	if b.isPrivate() {
		c.unbind()
		if deferred != nil {
			deferred.again()
			c.tx = deferred
		}
	}
}

// Done ends an operation.
func (c *Checkout) Done(w *Want) {
	c.Unlock(w)
	if w.Retried {
		c.engine.unattached.Add(-1)
	}
	if w.joined != nil {
		w.joined()
	}
}

// Unlock unlocks the session, if the operation holds its lock.
func (c *Checkout) Unlock(w *Want) {
	if !w.locked {
		return
	}
	w.locked = false
	r, b := w.Conn, c.binding
	if w.measured {
		w.measured = false
		r.Meter.EndOperation(r.pinnedBy())
	}
	// An operation that came too late may hold the lock of a session that has left the
	// binding.
	if c.conn == r && !w.peeks && r.holder.Load() == b {
		if b.isPrivate() {
			r.Unlock()
			return
		}
		b.endUse(r)
		return
	}
	peeks := w.peeks
	w.peeks = false
	b.release(r, peeks)
}

// hookContext is the context that the driver's own hooks (connect, ResetSession) get. It ends
// with the borrower's statement. As over the bare driver, it has the values of the context with
// which database/sql has taken the connection.
type hookContext struct {
	context.Context // the statement's context
	values          context.Context
}

func (h hookContext) Value(key any) any { return h.values.Value(key) }

// forHooks is the context that the driver's hooks get: it ends with ctx, and has the values of the
// context with which database/sql has taken the virtual connection.
func (c *Checkout) forHooks(ctx context.Context) context.Context {
	if c.values == nil || isSame(&ctx, &c.values) {
		return ctx
	}
	return &hookContext{ctx, c.values}
}

// isSame reports whether two contexts are known to be the same one: they have the same type and
// the same data. The operator == would panic if the program's type cannot be compared.
func isSame(a, b *context.Context) bool {
	return *(*[2]uintptr)(unsafe.Pointer(a)) == *(*[2]uintptr)(unsafe.Pointer(b)) //nolint:gosec // it looks at no other memory
}

// Rows are the rows of a query of a checkout. They are read under the session's lock, until they
// have been read ahead into memory. database/sql serialises the calls of the owner of the rows.
type Rows struct {
	session.Rows

	conn     *Conn
	checkout *Checkout // the checkout that has opened the rows
	binding  *Binding
	closed   bool // by the owner
}

// OpenRows makes rows, which are new or recycled, those of a query that has just run in the
// operation. isFirst: nothing was executed in the checkout before.
func (c *Checkout) OpenRows(rows *Rows, w *Want, real driver.Rows, isFirst bool) {
	r := w.Conn
	rows.conn, rows.checkout, rows.binding, rows.closed = r, c, c.binding, false
	c.rows = rows
	r.OpenRows(&rows.Rows, real, &w.Statement, c.isAlone(r, isFirst))
	if r.Meter.TellsSlow() {
		r.Meter.OpenRows()
	}
}

// isAlone reports whether the query that has just run is all that the checkout has done, and has left
// nothing on the session. Then others can take the session when the query's rows are in memory. A
// statement that is only prepared may leave something (Traits.PreparingActs).
func (c *Checkout) isAlone(r *Conn, isFirst bool) bool {
	return isFirst && c.tx == nil && session.LeavesNothing(r.Effect())
}

// OpenText is OpenRows for a statement that began with Borrow or Again.
func (c *Checkout) OpenText(rows *Rows, r *Conn, real driver.Rows, text string, prepared *stmtcache.Stmt) {
	rows.conn, rows.checkout, rows.binding, rows.closed = r, c, c.binding, false
	c.rows = rows
	r.OpenText(&rows.Rows, real, text, prepared, c.isAlone(r, !c.executed))
	if r.Meter.TellsSlow() {
		r.Meter.OpenRows()
	}
}

// Closed reports whether the owner has closed the rows.
func (r *Rows) Closed() bool { return r.closed }

// WithTaskEnd is Checkout.WithTaskEnd for an error of the rows.
func (r *Rows) WithTaskEnd(err error) error { return r.binding.withTaskEnd(r.conn, err) }

// Lock locks the session for a call of the driver. If live is false, there is no call to
// make: the rows are in memory, or closed, or lost.
func (r *Rows) Lock() (live bool) {
	if r.closed || r.Buffer() != nil || r.Gone() || r.IsLent() {
		return false
	}
	_ = r.conn.Lock(context.Background())
	if r.Live() {
		if r.conn.holder.Load() == r.binding {
			r.conn.Meter.BeginRow()
			return true
		}
		r.LoseSession() // the driver has panicked
	}
	r.conn.unlock()
	return false
}

// Unlock ends what Lock began.
func (r *Rows) Unlock() {
	c, b := r.conn, r.binding
	c.use.moves()
	c.Meter.EndRow()
	if b.waiting.Load() > 0 {
		b.unlock(c)
		return
	}
	c.Unlock()
	if b.waiting.Load() > 0 { // see unlock
		b.offer(c)
	}
}

// CountRow counts a row that was read from the driver.
func (r *Rows) CountRow() { r.conn.Meter.CountRow() }

// IsLent reports whether a function of Raw has the session of rows without a task. In a
// task the rows are read into memory before the function is called.
func (r *Rows) IsLent() bool {
	return r.conn != nil && r.checkout.lent == r.conn && r.binding.isPrivate()
}

// Close closes the rows. If a function of Raw has their session, CloseAfterLoan closes the
// driver's rows. The connection goes back if nothing else holds it. reusable: nothing refers to the
// rows any more.
func (r *Rows) Close() (reusable bool, err error) {
	live := r.Lock()
	r.closed = true
	if !live {
		if b := r.Buffer(); b != nil {
			r.checkout.engine.starvation.forget(&r.Rows)
			b.Drop()
			return false, b.Closed()
		}
		return false, nil
	}
	returned := false
	defer func() {
		r.DropPrefix()
		if r.conn.Meter.TellsSlow() {
			r.conn.Meter.CloseRows()
		}
		r.conn.Meter.SetPin(r.conn.pinnedBy())
		switch {
		case !returned:
			r.driverPanicked()
		case r.LetGo():
			r.binding.unlock(r.conn)
			r.binding.leave(r.conn, &r.conn.use.users)
		default:
			r.Unlock()
			reusable = r.binding.isPrivate() // other statements may refer to the rows of a task
		}
	}()
	err = r.Rows.Close()
	returned = true
	return false, err
}

// CloseAfterLoan closes the driver's rows after a function of Raw.
func (r *Rows) CloseAfterLoan() {
	_ = r.conn.Lock(context.Background())
	defer r.conn.Unlock()
	if r.Live() {
		_ = r.Rows.Close()
	}
}

// Recycle empties rows that are reusable.
func (r *Rows) Recycle() {
	c, b := r.checkout, r.binding
	if c.rows == r {
		c.rows = nil // nothing is left that could be taken back
	}
	*r = Rows{checkout: c, binding: b, closed: true}
}

// driverPanicked ends the connection of rows whose driver panicked in Close. It is called
// with the lock, and unlocks.
func (r *Rows) driverPanicked() {
	c := r.checkout
	ends := c.conn == r.conn && (c.tx == nil || r.binding.isPrivate())
	if ends {
		r.binding.standDown(r.conn)
		c.letGo()
	}
	r.binding.release(r.conn, ends)
	if r.binding.isPrivate() {
		c.unbind()
	}
}

package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
)

// This file alone decides which session serves an operation; claim.go, when it may go back.
//
// A checkout begins when database/sql takes a virtual connection, and ends when
// database/sql puts that connection back. The first operation of the checkout attaches a
// real connection. The real connection stays until the checkout ends, so that a *sql.Tx or
// *sql.Conn keeps its session.
//
// Every checkout has a binding. Without a task the binding is private: it has one
// connection, nothing pins that connection beyond the checkout, and the checkout behaves
// as over plain database/sql.
//
// In a task every connection belongs to the task's binding, and one statement at a time
// uses it. While nothing pins a session, each checkout of the task takes a connection from
// the pool. The first statement that needs a session (it begins a transaction or sets
// state) makes its connection the main one. From then on every statement of the task uses
// the main connection, until nothing pins it. If the pool has no free connection, a
// statement shares a connection that its task has already. The rows that are open on that
// connection are read into memory first. A task without a connection waits in the pool's
// queue. So a task that holds a connection waits for another one only if a statement
// cannot share.
//
// An implicit task shares nothing: its checkouts use their connections as without a task,
// and none is the main one. The binding knows them for the task's end.

// binding is the set of connections that a task has on one connector. Without a task, each
// checkout has a private binding.
type binding struct {
	connector *core
	task      *task.Task // nil: the binding is private
	shares    bool       // its checkouts share connections: it is an explicit task's

	// main is the task's session while something pins it. It changes under the lock of the
	// session that it is or was.
	main atomic.Pointer[realConn]
	// lossBarrier is the error of the task's statements after the task has lost a
	// transaction or state that they relied on. nil: nothing is lost.
	lossBarrier atomic.Pointer[session.LostError]
	ended       atomic.Bool
	rolledBack  atomic.Bool  // a transaction was open at the task's end
	held        atomic.Int32 // connections lent to the task, or on their way to it

	// mu protects who has claims on the binding's connections (use.users, use.peeks), the pin
	// that keeps one here (use.pin), and a connection's coming and leaving. It is held for some
	// nanoseconds, and never while anything waits. Order: a session's lock, then mu.
	mu sync.Mutex
}

var _ task.Member = (*binding)(nil)

// TaskEnded makes the binding refuse statements from now on. WrapUp follows.
func (b *binding) TaskEnded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended.Store(true)
}

func (b *binding) isPrivate() bool { return b.task == nil }

// enter finds the session for an operation of the task, and returns with the session's
// lock.
func (b *binding) enter(ctx context.Context, c *checkout, op *operation) error {
	for {
		again, err := b.lockTarget(ctx, c, op)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		if again, err = b.settle(ctx, c, op); err != nil || again {
			c.unlock(op)
			if err != nil {
				return err
			}
			continue
		}
		if busy := op.real.use.raw; busy != nil {
			c.unlock(op)
			if err := b.awaitRaw(ctx, busy); err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// lockTarget locks the session that seems to be the one for an operation. again: that session
// has left.
func (b *binding) lockTarget(ctx context.Context, c *checkout, op *operation) (again bool, _ error) {
	if err := b.refuses(c, op); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if rows := c.open; rows != nil && rows.Buffer() != nil {
		c.open = nil // their connection may belong to another borrower: do not wait for its lock
		if rows.Detached() {
			c.part()
		}
	}
	if r := b.target(c); r != nil {
		return b.lockFor(ctx, c, op, r)
	}
	return false, b.obtain(ctx, c, op)
}

// refuses returns the error of an operation that must not run now, or not any more.
func (b *binding) refuses(c *checkout, op *operation) error {
	if b.ended.Load() {
		return b.task.EndedError()
	}
	if c.scope.Left() {
		return sql.ErrTxDone
	}
	// A BeginTx passes the loss barrier unless the barrier is final. So do the statements
	// of a *sql.Tx, because checkTx reports what that transaction has lost.
	if f := b.lossBarrier.Load(); f != nil && (f.Final() || op.kind != beginning && c.tx == nil) {
		return f
	}
	return nil
}

// raiseBarrier has the task's statements fail from now on, because of what was lost.
func (b *binding) raiseBarrier(loss *session.LostError) { b.lossBarrier.Store(loss) }

// lowerBarrier removes the loss barrier unless it is final. A transaction has begun, so
// the program knows that the last one is gone.
func (b *binding) lowerBarrier() {
	if f := b.lossBarrier.Load(); f != nil && !f.Final() {
		b.lossBarrier.CompareAndSwap(f, nil)
	}
}

// target returns the connection for an operation of c: that of its InTx, else the main
// one, else the one that c has. nil: c takes one from the pool. target does not hold the
// connection's lock; settle checks the answer under the lock.
func (b *binding) target(c *checkout) *realConn {
	var to *realConn
	if tx := b.transactionOf(c.scope); tx != nil {
		to = tx.owner
	} else if main := b.main.Load(); b.callsToMain(main, c) {
		to = main
	} else {
		return c.real
	}
	if c.real != nil && c.real != to {
		b.detach(c) // may wait for a lock, so main may have changed
		return b.target(c)
	}
	return to
}

// settle checks, under the lock of op.real, that op.real is the right connection for the
// operation, and prepares it. again: it is not, or not any more.
func (b *binding) settle(ctx context.Context, c *checkout, op *operation) (again bool, _ error) {
	if again, err := b.join(c, op); again || err != nil {
		return again, err
	}
	if !b.shares || op.real.use.raw != nil {
		return false, nil // nobody else uses it, or enter waits for the function of Raw
	}
	if again, err := b.checkTx(c, op); again || err != nil {
		return again, err
	}
	return b.prepareFor(ctx, c, op)
}

// checkTx decides whether the operation may run, given the transaction that is open on
// op.real or was open there.
func (b *binding) checkTx(c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if r.Unusable() && r == b.main.Load() && !r.Begun() {
		return true, nil // reading rows has found it dead; release raises the loss barrier
	}
	if dead := r.Outlived(); dead != nil {
		_ = dead.End() // the program's next call on it returns the error
		return true, nil
	}
	if tx := c.tx; tx != nil && op.kind != beginning && !tx.over && !tx.Open() && !tx.Replaced() {
		return false, sql.ErrTxDone // a statement of an ended transaction must not run in autocommit
	}
	own := c.own(r)
	if own == nil && b.isAmbient(c, r) {
		if err := b.joinsTx(r, op); err != nil {
			return false, err
		}
	}
	return false, r.lossOf(own)
}

// lossOf returns why a statement must not run on r. own is the statement's transaction,
// nil if it has none.
func (r *realConn) lossOf(own *transaction) error {
	if r.TxLost() {
		return r.LostTx()
	}
	if own != nil {
		return own.Lost()
	}
	if in := r.Innermost(); in != nil {
		return in.Lost()
	}
	return nil
}

// isAmbient reports whether an operation of c, which has no transaction of its own on r,
// would run in a transaction that another checkout has begun.
func (b *binding) isAmbient(c *checkout, r *realConn) bool {
	return r.InTx() && (r.Begun() || r.use.opener != c)
}

// join makes c a user of op.real, if op.real is still the connection for the operation.
func (b *binding) join(c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if b.refuses(c, op) != nil {
		// Something has changed since enter called refuses; enter calls it again. The loss
		// barrier is raised under the lock of the main connection, while main still points
		// to it. So a statement that found the main connection before that sees the
		// barrier here.
		return true, nil
	}
	if rows := c.open; rows != nil && c.real == r {
		rows.Attach()
		if rows.Detached() {
			c.open = nil
			c.part()
			return true, nil
		}
	}
	scoped := b.transactionOf(c.scope)
	if scoped != nil && (r.holder.Load() != b || !scoped.Open()) {
		return false, sql.ErrTxDone // the transaction of InTx has ended before its function
	}
	if r.holder.Load() != b {
		if c.real == r { // c's connection has died, and has left the binding
			return false, driver.ErrBadConn
		}
		return true, nil // r was the main connection, and has left the binding
	}
	main := b.main.Load()
	switch {
	case c.real != r:
		if main != r && scoped == nil {
			return true, nil
		}
		b.joined(op, r)
		c.share(r, true)
	case scoped == nil && b.callsToMain(main, c):
		return true, nil
	}
	return false, nil
}

// prepareFor makes r the main session if the operation needs a session, and reads into
// memory the rows that block the operation.
func (b *binding) prepareFor(ctx context.Context, c *checkout, op *operation) (again bool, _ error) {
	r := op.real
	if op.kind == beginning || session.NeedsSession(op.Effect) {
		main := b.main.Load()
		if main == nil {
			if !b.main.CompareAndSwap(nil, r) {
				return true, nil // another connection has just become the main one
			}
			r.use.begin()
		}
		if !r.InTx() {
			r.use.opener = c // of a transaction that this statement may begin
		}
	}
	if err := r.ReadAhead(ctx); err != nil {
		return false, err
	}
	if !isSame(r.values, c.values) && r.TakesValues() {
		r.values = c.values
		if err := r.Share(c.forHooks(ctx)); err != nil {
			return false, err
		}
	}
	if op.Effect&dialects.Writes != 0 && r.Traits().WritesAlone {
		b.clearOthers(ctx, r)
	}
	return false, nil
}

// callsToMain reports whether operations of c have to use main and not the connection that
// c has.
func (b *binding) callsToMain(main *realConn, c *checkout) bool {
	return main != nil && main != c.real
}

// standDown ends c's use of r, under r's lock. Other users of r stay.
func (b *binding) standDown(c *checkout, r *realConn) {
	b.countOut(r)
	c.letGo()
}

// joinsTx decides, under r's lock, whether a statement may join the transaction on r,
// which is not its own. The error says why not.
func (b *binding) joinsTx(r *realConn, op *operation) error {
	switch b.connector.config.Ambient {
	case AmbientStrict:
		if op.kind != beginning {
			return fmt.Errorf("pooldriver: %s has a transaction open (%s), and pool_ambient=strict keeps other statements out of it; use the *sql.Tx, InTx, or a context of Outside or NewTask", b.task.Name(), ago(r.use.since))
		}
	case AmbientWarn:
		if !r.use.warned {
			r.use.warned = true
			b.connector.report.JoinedTx(b.task.Name(), ago(r.use.since))
		}
	}
	if t := r.Innermost(); t != nil {
		t.Join()
	}
	return nil
}

// findPlace writes to p, which is empty, the task of ctx on this connector, with its InTx
// and the task around it.
func (c *core) findPlace(ctx context.Context, p *task.Place) error {
	return c.keyedTasks.Find(ctx, c.taskKey, p)
}

// bindTo returns the binding of t on c, and creates it if there is none.
func (c *core) bindTo(t *task.Task) (*binding, error) {
	m, err := t.Member(c, c.config.TaskTimeout, func() task.Member {
		return &binding{task: t, connector: c, shares: !t.Implicit() || c.config.Ambient != AmbientAuto}
	})
	if err != nil {
		return nil, err
	}
	return m.(*binding), nil
}

// bindingOf returns the binding of t on c, nil if there is none.
func (c *core) bindingOf(t *task.Task) *binding {
	b, _ := t.MemberOn(c).(*binding)
	return b
}

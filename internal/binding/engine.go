// Package binding decides which real connection serves an operation, who shares it, and when it
// goes back.
package binding

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/waitgraph"
	"github.com/pooldriver/pooldriver/pool"
)

// Engine finds the binding of a context, and gives bindings their connections.
type Engine struct {
	// OnTaken, if set, is called for each connection that was taken, when it is known who has it. It is
	// set before the first one.
	OnTaken func()

	config     *config.Config
	usage      *usage.Env
	pool       *connpool.Pool
	report     *report.Report
	group      *group
	starvation starvation
	pipelines  pipelines
	private    Binding // of every checkout without a task: it has no field but its engine
	// unattached counts work that has begun and has no connection for a while: a deferred
	// transaction that has run no statement, and a statement that moves from a dead connection to
	// another one. Such work is counted from before it has no connection, until it has one again
	// or is over. Once the pool drains, no new work stays counted: a deferred transaction is
	// counted first, and only then looks whether the pool drains.
	unattached atomic.Int64
}

// group is the engines of one Connector: of the primary, and of each replica.
type group struct {
	keyed   task.Keyed
	numbers atomic.Uint64 // of connections
	waiters waitgraph.Queue[*waiter]
	engines []*Engine // all engines of the Connector, complete before the first statement
}

// New makes an engine with its pool. Nothing is opened.
func New(c *config.Config, t dialects.Template, u *usage.Env, r *report.Report) (_ *Engine, err error) {
	e := &Engine{config: c, usage: u, report: r, group: &group{}}
	return e, e.init(t)
}

// WithPool makes an engine with another pool, for the same tasks. Nothing is opened.
func (e *Engine) WithPool(c *config.Config, t dialects.Template, u *usage.Env, r *report.Report) (*Engine, error) {
	other := &Engine{config: c, usage: u, report: r, group: e.group}
	if err := other.init(t); err != nil {
		return other, err
	}
	connpool.ShareGenerations(other.pool, e.pool) // a prepared statement may run on both
	return other, nil
}

func (e *Engine) init(t dialects.Template) (err error) {
	e.starvation.engine, e.pipelines.engine, e.private.engine = e, e, e
	e.group.engines = append(e.group.engines, e)
	e.usage.Times.Outline = e.Outline
	e.pool, err = connpool.New(e.config, t, e.usage, e.starvation.starving, e.report, &e.group.numbers)
	return err
}

// Pool has the connections.
func (e *Engine) Pool() *connpool.Pool { return e.pool }

// Unattached is how much work has begun and has no connection for a while.
func (e *Engine) Unattached() int64 { return e.unattached.Load() }

// connections are the real connections that are open, lent or idle.
func (e *Engine) connections() iter.Seq[*connpool.Conn] { return slices.Values(e.pool.Conns()) }

// FindPlace writes to p, which is empty, the task of ctx on this connector, with its InTx and
// the task around it.
func (e *Engine) FindPlace(ctx context.Context, p *task.Place) error {
	return e.group.keyed.Find(ctx, e.config.TaskKey, p)
}

// Keeps reports whether the statements of a context at p run on the session that their task has on e: a
// transaction or state is there, or was lost there.
func (e *Engine) Keeps(p *task.Place) bool {
	if p.Task == nil {
		return false
	}
	b := e.bindingOf(p.Task)
	return b != nil && (b.main.Load() != nil || b.lossBarrier.Load() != nil || b.transactionOf(p.Scope) != nil)
}

// bindTo returns the binding of t, and creates it if there is none.
func (e *Engine) bindTo(t *task.Task) (*Binding, error) {
	m, err := t.Member(e, e.config.TaskTimeout, func() task.Member {
		return &Binding{task: t, engine: e, shares: !t.Implicit() || e.config.Ambient != config.AmbientAuto}
	})
	if err != nil {
		return nil, err
	}
	return m.(*Binding), nil
}

// bindingOf returns the binding of t, nil if there is none.
func (e *Engine) bindingOf(t *task.Task) *Binding {
	b, _ := t.MemberOn(e).(*Binding)
	return b
}

// acquire takes a connection from the pool. who is the *Binding of the statement's task or, without a
// task, the statement's label. waited is how long the statement has waited in vain, as in each function
// that returns it: if the error is nil, the connection knows.
func (e *Engine) acquire(ctx context.Context, who any, priority pool.Priority) (_ *connpool.Conn, waited time.Duration, _ error) {
	r, err := e.pool.Acquire(ctx, who, priority)
	if err != nil {
		return nil, connpool.WaitOf(err), e.acquireError(err, nil)
	}
	if e.pool.IsUp(r) {
		return r, 0, nil
	}
	return e.broughtUp(ctx, r)
}

// acquireBeside takes a connection for a statement without a task whose context was derived from that of the
// task from.
func (e *Engine) acquireBeside(ctx context.Context, from *task.Task, label *string, priority pool.Priority) (_ *connpool.Conn, waited time.Duration, _ error) {
	r, waited, err := e.acquireNow(ctx)
	if err != pool.ErrNoneNow {
		return r, waited, err
	}
	w := newWaiter(ctx, e)
	defer w.cancel(nil)
	w.from, w.label, w.priority = from, label, priority
	return e.await(w)
}

// broughtUp gives r, which comes from the pool, all settings of the *sql.DB.
func (e *Engine) broughtUp(ctx context.Context, r *connpool.Conn) (_ *connpool.Conn, waited time.Duration, _ error) {
	waited = r.Waited() // it goes back if it cannot be brought up
	if err := e.pool.BringUp(ctx, r); err != nil {
		return nil, waited, err
	}
	return r, 0, nil
}

// acquireNow takes a connection if that is possible without a wait for others. Otherwise the
// error is pool.ErrNoneNow.
func (e *Engine) acquireNow(ctx context.Context) (_ *connpool.Conn, waited time.Duration, _ error) {
	r, err := e.pool.AcquireNow(ctx)
	return e.gotNow(ctx, r, err)
}

// gotNow goes on after AcquireNow, or Acquire with pool.OnlyIdle.
func (e *Engine) gotNow(ctx context.Context, r *connpool.Conn, err error) (_ *connpool.Conn, waited time.Duration, _ error) {
	switch err {
	case nil:
		return e.broughtUp(ctx, r)
	case pool.ErrNoneNow:
		return nil, 0, err
	}
	return nil, connpool.WaitOf(err), e.acquireError(err, nil)
}

// await queues for a connection. While it waits, starving looks after the waiter.
func (e *Engine) await(w *waiter) (_ *connpool.Conn, waited time.Duration, _ error) {
	r, err := e.wait(w)
	waited = connpool.WaitOf(err)
	switch {
	case err == nil:
		if w.binding != nil {
			w.binding.leaveQueue(w) // the waiter has a connection, and needs no seat of the task
		}
		return e.broughtUp(w.around, r)
	case context.Cause(w.ctx) == errHandedOver:
		return nil, waited, errHandedOver
	case w.around.Err() == nil && w.ctx.Err() != nil:
		e.report.AcquireFailed(report.Deadlock)
		return nil, waited, context.Cause(w.ctx)
	}
	err = e.acquireError(err, w)
	if w.tooLarge != nil {
		err = fmt.Errorf("%w; rows that the task has open could not be read into memory instead: %w", err, w.tooLarge)
	}
	return nil, waited, err
}

func (e *Engine) wait(w *waiter) (*connpool.Conn, error) {
	e.group.waiters.Join(w)
	defer e.group.waiters.Leave(w) // also by a panic of the driver
	return e.pool.Acquire(w.ctx, w, w.priority)
}

// acquireError is the error of a caller that got no connection; w is nil for a caller without a
// task.
func (e *Engine) acquireError(err error, w *waiter) error {
	if inCycle := e.starvation.timeout(err, w); inCycle != nil {
		return inCycle
	}
	return e.pool.Explain(err)
}

// admits reports whether a statement that has no connection may take one. While the connector
// drains, it may do so only if its task, or a task around its task, has a connection or open rows. b is
// nil without a task.
func (e *Engine) admits(b *Binding, from *task.Task) bool {
	return !e.pool.Draining() || e.serves(b, from)
}

// serves reports whether the statement's task, or a task around it, has a connection or open rows.
func (e *Engine) serves(b *Binding, from *task.Task) bool {
	if b != nil && e.group.has(b.task) {
		return true
	}
	for t := from; t != nil; t = t.From() {
		if e.group.has(t) {
			return true
		}
	}
	return false
}

// has reports whether t has a connection of any of the pools, or open rows. Rows in memory count, too: their
// loop has begun.
func (g *group) has(t *task.Task) bool {
	for _, e := range g.engines {
		if b := e.bindingOf(t); b != nil && (b.open.Load() > 0 || b.hasAny()) {
			return true
		}
	}
	return false
}

// WhoIs is for whom something happens: a checkout with this label and this task. Both may be nil.
func WhoIs(label *string, t *task.Task) report.Who {
	return report.Who{Label: usage.Text(label), Task: NameOf(t)}
}

// NameOf is a task's name; t may be nil.
func NameOf(t *task.Task) string {
	if t == nil {
		return ""
	}
	return t.Name()
}

// Times has how long statements take.
func (e *Engine) Times() *usage.Times { return &e.usage.Times }

// Outline is a statement's text without literals; text may be nil.
func (e *Engine) Outline(text *string) string { return connpool.Outline(e.config.Dialect, text) }

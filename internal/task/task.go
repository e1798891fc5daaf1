// Package task is about logical sessions. A context carries a task, and everything that
// runs with that context, or with one derived from it, belongs to the task. The package
// knows no database: what a task uses is a Member.
package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/pool"
)

// ErrEnded is the error of a statement that comes after the end of its task.
var ErrEnded = errors.New("pooldriver: the task of this context has ended; a statement that is to run later needs a context of NewTask or Outside")

// Task is a context that carries itself as its task. Until a statement uses a database,
// a task costs only this struct. The methods may be called at the same time.
type Task struct {
	context.Context
	cancel   context.CancelCauseFunc
	from     *Task
	label    *string       // the label of the context from which the task was made
	priority pool.Priority // the priority of that context
	implicit bool

	first atomic.Pointer[membership] // the first of use.members, to find it without the lock

	mu       sync.Mutex // protects following fields
	ended    bool
	attached any  // nil: nothing
	use      *use // nil until the first statement
}

// use is what a task needs after it has used a database.
type use struct {
	number    uint64 // for errors
	name      string // the task's name, made from number when it is first needed
	begun     time.Time
	members   []membership
	unwatch   func() bool   // stops waiting for the end of the context
	limit     time.Duration // the shortest limit of the members; 0: none
	timer     *time.Timer   // the timer that ends the task after limit
	wrappedUp chan struct{} // closed when every member has wrapped up
}

var numbers atomic.Uint64

// New begins a task, whether or not ctx carries one. The new task shares nothing with
// that one. The task ends with ctx, or earlier by End.
func New(ctx context.Context) *Task { return begin(ctx, PlaceOf(ctx), false) }

// With returns ctx if it carries a task, and a context with a new task otherwise. The
// function ends the new task, and nothing else. An implicit task is not enough for With,
// unless ctx is inside a Scope: a caller of With wants other statements to join its
// transaction, and in an implicit task they do not.
func With(ctx context.Context) (context.Context, func()) {
	p := PlaceOf(ctx)
	if p.Task != nil && !p.Task.implicit {
		return ctx, func() {}
	}
	t := begin(ctx, p, false)
	return t, t.End
}

// WithImplicit begins a task for a program that may know nothing of tasks: the new task is an
// implicit one, and every task that ctx carries is enough.
func WithImplicit(ctx context.Context) (context.Context, func()) {
	p := PlaceOf(ctx)
	if p.Task != nil {
		return ctx, func() {}
	}
	t := begin(ctx, p, true)
	return t, t.End
}

// begin begins a task at a place, which is that of ctx.
func begin(ctx context.Context, at Place, implicit bool) *Task {
	t := &Task{from: at.nearest(), label: at.Label, priority: at.Priority, implicit: implicit}
	t.Context, t.cancel = context.WithCancelCause(ctx)
	return t
}

// From returns the task whose context t was made of, nil if there is none. That task
// may have to wait until t ends.
func (t *Task) From() *Task { return t.from }

// Attached returns what is attached to the task, which is one thing: that of the first call of create.
func (t *Task) Attached(create func() any) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.attached == nil {
		t.attached = create()
	}
	return t.attached
}

// Label is the label of the context that t was made of; empty: none.
func (t *Task) Label() string {
	if t.label == nil {
		return ""
	}
	return *t.label
}

// Implicit reports whether the program may know nothing of the task.
func (t *Task) Implicit() bool { return t.implicit }

// Value returns t for the key of this package.
func (t *Task) Value(k any) any {
	if _, ok := k.(key); ok {
		return t
	}
	return t.Context.Value(k)
}

// String keeps package fmt from printing the context inside.
func (t *Task) String() string { return "pooldriver.Task" }

// Name returns how errors call the task.
func (t *Task) Name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.use == nil {
		return "a task"
	}
	if t.use.name == "" {
		t.use.name = fmt.Sprintf("task %d", t.use.number)
	}
	return t.use.name
}

// Begun is when the first statement of the task began, and zero before.
func (t *Task) Begun() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.use == nil {
		return time.Time{}
	}
	return t.use.begun
}

// End ends the task, and returns when every member has wrapped up. The cause of the
// context is then ErrEnded, unless the context had ended before. A second call waits
// for the first, and does nothing else.
func (t *Task) End() { t.finish(ErrEnded) }

// finish ends the task. cause is what context.Cause returns then. If it is nil, the context has ended by itself.
func (t *Task) finish(cause error) {
	t.mu.Lock()
	first, u := !t.ended, t.use
	t.ended = true
	t.mu.Unlock()
	if first && u != nil {
		u.unwatch()
		if u.timer != nil {
			u.timer.Stop()
		}
		for _, m := range u.members { // complete: a task that has ended gets no more members
			m.member.TaskEnded()
		}
	}
	t.cancel(cause)
	switch {
	case u == nil:
	case first:
		defer close(u.wrappedUp)
		for _, m := range u.members {
			m.member.WrapUp()
		}
	default:
		<-u.wrappedUp
	}
}

// EndedError returns the error of a statement that comes after the end of the task.
// errors.Is finds in it ErrEnded, and the error and the cause of the task's context.
func (t *Task) EndedError() error {
	if t.Context.Err() == nil { // finish is about to cancel the context
		return fmt.Errorf("%w (%w)", ErrEnded, context.Canceled)
	}
	if cause := context.Cause(t.Context); errors.Is(cause, ErrEnded) {
		return ctxerr.WithEnd(t.Context, cause)
	}
	return ctxerr.WithEnd(t.Context, ErrEnded)
}

// WithEnd returns err with the end of the task. err is the error of a statement whose
// connection was cut because the task has ended.
func (t *Task) WithEnd(err error) error {
	if errors.Is(err, ErrEnded) {
		return err
	}
	return fmt.Errorf("%w: %w", err, t.EndedError())
}

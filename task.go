package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/implicit"
)

// WithTask returns a context that carries a task, and a function that ends it.
// What runs with that context, or one derived from it, on any handle of any
// connector of this package, is one logical session: it sees the same
// transaction and the same session state. Between statements the task holds no
// connection, unless a transaction or session state pins one.
//
// The end rolls back what is open, cleans what was changed, gives the
// connections back, and returns when that is done, which is bounded by twice
// Config.CleanTimeout for each connector. A connection that a function of Raw has
// comes back when that returns. The context is then done, with the cause
// ErrTaskEnded, unless it had ended before. Calling it again does nothing. If ctx
// ends first, the same happens by itself. Until one of them happens the task's
// resources are kept.
//
// Where ctx carries such a task already, or is one of InTx's function, it is
// returned as it is, and the function does nothing: the task belongs to whoever
// began it. In an implicit task, which was begun for a program that may know nothing
// of tasks (httptask.Separate, WithTaskKey), WithTask begins a task of its own, as
// NewTask does: who calls it wants other statements to join its transaction. What
// the implicit task has open, and the state that it has set, are not the new one's.
//
// The goroutines of a task may use it at the same time. Transactions nest in
// one goroutine: a second one that wants a transaction of its own uses NewTask.
func WithTask(ctx context.Context) (context.Context, func()) {
	p := placeOf(ctx)
	if m, ok := ctx.(*implicit.Marked); ok && p.task != nil {
		return m.Context, func() {} // httptask asks for any task
	}
	if p.task != nil && (!p.task.implicit || p.scope != nil) {
		return ctx, func() {}
	}
	t := newTask(ctx, p)
	return t, t.end
}

// NewTask is WithTask, but the task is always a new one, which shares nothing
// with the one that ctx may carry: an audit record that has to stay when the
// transaction around it is rolled back, a goroutine with a transaction of its
// own. A new task inside another one's transaction needs a connection of its
// own, see ErrDeadlock.
func NewTask(ctx context.Context) (context.Context, func()) {
	t := newTask(ctx, placeOf(ctx))
	return t, t.end
}

func newTask(ctx context.Context, p place) *task {
	t := &task{from: p.nearest(), implicit: p.implicit}
	t.Context, t.cancel = context.WithCancelCause(ctx)
	return t
}

// Outside returns a context without a task, for statements that belong to
// nobody's session. It still ends when ctx does; context.WithoutCancel undoes
// that.
func Outside(ctx context.Context) context.Context {
	return &outside{ctx, placeOf(ctx).nearest()}
}

// Do calls fn with a context that carries a task, which is WithTask's of ctx, and
// returns fn's error. A task that Do began has ended when it returns,
// also by a panic.
func Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errors.New("pooldriver: Do was given no function")
	}
	ctx, end := WithTask(ctx)
	defer end()
	return fn(ctx)
}

// task is a context that carries a task: itself. Its own memory is all there
// is of it until a statement runs.
type task struct {
	context.Context
	cancel   context.CancelCauseFunc
	from     *task // whose context it was made of: see starvation.go
	implicit bool  // implicit: programs that know nothing of tasks run in it

	first atomic.Pointer[binding] // of life.bindings, for those with one

	mu    sync.Mutex // protects following fields
	ended bool
	life  *taskLife // nil until the first statement
}

// taskLife is what a task needs that uses a database.
type taskLife struct {
	bindings []*binding
	number   uint64 // for errors
	begun    time.Time
	wrapped  chan struct{} // closed when the end is complete
	stop     func() bool   // ends the watch over the context
	timer    *time.Timer   // of Config.TaskTimeout
	limit    time.Duration // the shortest of them
}

// on returns the binding on connector c, nil if there is none. The task's lock is
// held.
func (l *taskLife) on(c *Connector) *binding {
	for _, b := range l.bindings {
		if b.connector == c {
			return b
		}
	}
	return nil
}

func (t *task) Value(key any) any {
	if _, ok := key.(implicit.Key); ok {
		return t
	}
	return t.Context.Value(key)
}

// String keeps fmt from printing the contexts within.
func (t *task) String() string { return "pooldriver.Task" }

type outside struct {
	context.Context
	from *task
}

func (o *outside) Value(key any) any {
	if _, ok := key.(implicit.Key); ok {
		return o
	}
	return o.Context.Value(key)
}

// place is what a context says of tasks.
type place struct {
	task     *task    // nil: none
	from     *task    // whose context it was derived from, beyond task
	scope    *txScope // of InTx
	outside  bool     // expressly none
	implicit bool     // a task that is made here will be an implicit one
}

// placeOf asks the innermost context that says something.
func placeOf(ctx context.Context) place { return placeAt(ctx.Value(implicit.Key{})) }

// placeAt is placeOf, of what the context has said.
func placeAt(said any) place {
	switch at := said.(type) {
	case *task:
		return place{task: at, from: at.from}
	case *txScope:
		return place{task: at.task, from: at.task.from, scope: at}
	case *outside:
		return place{from: at.from, outside: true}
	case *implicit.Marked:
		p := placeOf(at.Context)
		p.implicit = p.task == nil
		return p
	}
	return place{}
}

// nearest is the task that a context made here is derived from.
func (p place) nearest() *task {
	if p.task != nil {
		return p.task
	}
	return p.from
}

var taskNumbers atomic.Uint64

// binding returns what the task has on connector c.
func (t *task) binding(c *Connector) (*binding, error) {
	if b := t.first.Load(); b != nil && b.connector == c && t.Err() == nil {
		return b, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.Err() != nil {
		return nil, t.endedError()
	}
	l := t.life
	if l == nil {
		l = &taskLife{number: taskNumbers.Add(1), begun: time.Now(), wrapped: make(chan struct{})}
		l.stop = context.AfterFunc(t.Context, func() { t.finish(nil) })
		t.life = l
	}
	if b := l.on(c); b != nil {
		return b, nil
	}
	b := &binding{task: t, connector: c}
	l.bindings = append(l.bindings, b)
	if len(l.bindings) == 1 {
		t.first.Store(b)
	}
	if limit := c.config.TaskTimeout; limit > 0 && (l.limit == 0 || limit < l.limit) {
		l.limit = limit
		if l.timer != nil {
			l.timer.Stop()
		}
		l.timer = time.AfterFunc(time.Until(l.begun.Add(limit)), func() {
			t.finish(fmt.Errorf("%w: it has used a database for longer than pool_task_timeout, which is %v", ErrTaskEnded, limit))
		})
	}
	return b, nil
}

func (t *task) end() { t.finish(ErrTaskEnded) }

// finish ends the task and returns when nothing is left of it. Whoever comes
// second waits for the first. A nil cause is the context's own end.
func (t *task) finish(cause error) {
	t.mu.Lock()
	first, l := !t.ended, t.life
	t.ended = true
	t.mu.Unlock()
	if first && l != nil {
		l.stop()
		if l.timer != nil {
			l.timer.Stop()
		}
		for _, b := range l.bindings { // complete: an ended task gets no more
			b.ended.Store(true)
		}
	}
	t.cancel(cause)
	switch {
	case l == nil:
	case first:
		defer close(l.wrapped)
		for _, b := range l.bindings {
			b.wrapUp()
		}
	default:
		<-l.wrapped
	}
}

// endedError is what statements get that come too late. errors.Is finds the error and
// the cause of the task's context, too.
func (t *task) endedError() error {
	if t.Context.Err() == nil { // it is about to end so
		return fmt.Errorf("%w (%w)", ErrTaskEnded, context.Canceled)
	}
	if cause := context.Cause(t.Context); errors.Is(cause, ErrTaskEnded) {
		return withEnd(t.Context, cause)
	}
	return withEnd(t.Context, ErrTaskEnded)
}

// withEnd is err, of a statement whose connection was cut by the task's end.
func (t *task) withEnd(err error) error {
	if errors.Is(err, ErrTaskEnded) {
		return err
	}
	return fmt.Errorf("%w: %w", err, t.endedError())
}

// name is what errors call the task.
func (t *task) name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == nil {
		return "a task"
	}
	return fmt.Sprintf("task %d", t.life.number)
}

// WithTaskKey makes a connector take a value of the program's own contexts for
// a task: contexts for which fn returns the same key belong to one task, which
// begins with its first statement and ends when lifetime does. The lifetime is
// the request's context, say, not that of one query with its timeout. Where
// Config.TaskTimeout ends the task before, its key's statements get ErrTaskEnded
// until the lifetime ends; a lifetime without an end leaves the key a new task. A nil
// key means no task. In a context that carries a task of WithTask, or was made by
// Outside, the key only tells who waits for whom.
//
// The task is implicit: the program may know nothing of it, so Config.Ambient's
// default for it is AmbientSeparate. fn is called once or several times
// in every checkout and must be quick; the key must be comparable.
func WithTaskKey(fn func(ctx context.Context) (key any, lifetime context.Context)) Option {
	return func(c *Config) { c.TaskKey = fn }
}

// keyedTasks are the tasks of WithTaskKey.
type keyedTasks struct {
	tasks sync.Map // by key; *keyedTask
}

// keyedTask is a task that a key stands for.
type keyedTask struct {
	*task
	// until is the key's lifetime, also if the task ends before: what comes later
	// would begin anew, and not know. A lifetime without an end leaves the task's.
	until context.Context
}

// placeOf is placeOf, for a connector with Config.TaskKey.
func (c *Connector) placeOf(ctx context.Context) (place, error) {
	said := ctx.Value(implicit.Key{})
	if said == nil && c.config.TaskKey == nil { // most contexts: no place to copy
		return place{}, nil
	}
	p := placeAt(said)
	if c.config.TaskKey == nil || p.from != nil {
		return p, nil
	}
	t, err := c.taskOfKey(ctx)
	if p.task == nil && !p.outside {
		p.task = t
	} else {
		p.from = t
	}
	return p, err
}

func (c *Connector) taskOfKey(ctx context.Context) (*task, error) {
	key, lifetime := c.config.TaskKey(ctx)
	if key == nil {
		return nil, nil
	}
	if lifetime == nil || !reflect.TypeOf(key).Comparable() {
		return nil, fmt.Errorf("pooldriver: the function of WithTaskKey has to return a comparable key and a lifetime; it gave a %T and a %T", key, lifetime)
	}
	for {
		if found, ok := c.keyedTasks.tasks.Load(key); ok {
			a := found.(*keyedTask)
			if a.until.Err() == nil || lifetime.Err() != nil {
				return a.task, nil
			}
			c.keyedTasks.tasks.CompareAndDelete(key, a) // the key is used again
		}
		a := &keyedTask{newTask(lifetime, placeOf(lifetime)), lifetime}
		a.implicit = true
		if lifetime.Done() == nil {
			a.until = a.task
		}
		if _, raced := c.keyedTasks.tasks.LoadOrStore(key, a); raced {
			a.end()
			continue
		}
		context.AfterFunc(a.until, func() { c.keyedTasks.tasks.CompareAndDelete(key, a) })
		return a.task, nil
	}
}

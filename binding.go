package pooldriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/task"
)

// WithTask returns a context that carries a task, and a function that ends it.
// What runs with that context, or one derived from it, on any handle of any
// connector of this package, is one logical session: it sees the same
// transaction and the same session state. Between statements the task holds no
// connection, unless a transaction or session state pins one.
//
// The end rolls back what is open, cleans what was changed, gives the
// connections back, and returns when that is done, which is bounded by twice
// Config.CleanTimeout for each connector. If a function of Raw has a connection of the
// task, that connection comes back when the function returns. The context is then
// done, with the cause ErrTaskEnded, unless it had ended before. Calling the function
// again does nothing. If ctx ends first, the same happens by itself. Until one of them
// happens the task's resources are kept.
//
// If ctx carries such a task already, or is the context of InTx's function, WithTask
// returns ctx as it is, and the function does nothing: only the call that began the
// task ends it. An implicit task is different. It was begun for a program that may
// know nothing of tasks (httptask.Separate, Config.TaskKey). In it WithTask begins a task
// of its own, as NewTask does, because a caller of WithTask wants other statements to
// join its transaction. The new task does not see the open transactions and the
// session state of the implicit one.
//
// The goroutines of a task may use it at the same time. Transactions nest in
// one goroutine: a second one that wants a transaction of its own uses NewTask.
func WithTask(ctx context.Context) (context.Context, func()) { return task.With(ctx) }

// NewTask is WithTask, but the task is always a new one, which shares nothing
// with the one that ctx may carry: an audit record that has to stay when the
// transaction around it is rolled back, a goroutine with a transaction of its
// own. A new task inside another one's transaction needs a connection of its
// own, see ErrDeadlock.
func NewTask(ctx context.Context) (context.Context, func()) {
	t := task.New(ctx)
	return t, t.End
}

// Outside returns a context without a task, for statements that belong to
// nobody's session. It still ends when ctx does; context.WithoutCancel undoes
// that.
func Outside(ctx context.Context) context.Context { return task.Outside(ctx) }

// Do calls fn with the context of WithTask(ctx), and returns fn's error. If Do began
// the task, the task has ended when Do returns, also by a panic.
func Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errors.New("pooldriver: Do was given no function")
	}
	ctx, end := WithTask(ctx)
	defer end()
	return fn(ctx)
}

// AmbientMode says what happens to a statement of a task, other than through
// the *sql.Tx, while a transaction of the task is open.
type AmbientMode uint8

const (
	// AmbientAuto is AmbientJoin for tasks made by WithTask, NewTask, Do and
	// InTx, and httptask.Join. Implicit tasks (Config.TaskKey, httptask.Separate) share
	// nothing; every other mode makes them share as the others do.
	AmbientAuto AmbientMode = iota
	// AmbientJoin runs it in the transaction. BeginTx begins a savepoint.
	AmbientJoin
	// AmbientWarn is AmbientJoin, and logs a warning, once per transaction.
	AmbientWarn
	// AmbientStrict is an error. BeginTx, and what runs in InTx, nest.
	AmbientStrict
)

var ambientModes = [...]string{"auto", "join", "warn", "strict"}

// String is the mode as a DSN spells it.
func (m AmbientMode) String() string {
	if int(m) < len(ambientModes) {
		return ambientModes[m]
	}
	return fmt.Sprintf("AmbientMode(%d)", uint8(m))
}

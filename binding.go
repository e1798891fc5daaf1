package pooldriver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/optiontable"
	"github.com/pooldriver/pooldriver/internal/task"
)

// WithTask returns a context that carries a task, and a function that ends the task. All
// statements with that context, or with a context derived from it, on any handle of any connector
// of this package, are one logical session: they see the same transaction and the same session
// state. Between statements the task holds no connection, unless a transaction or session state
// pins one.
//
// The function rolls back open transactions, cleans changed sessions and gives the connections
// back. It returns when all this is done, for each connector after twice Config.CleanTimeout at
// the latest. If a function of Raw has a connection of the task, that connection comes back when
// the function of Raw returns. The context is then done, with the cause ErrTaskEnded, unless it
// had ended before. A second call of the function does nothing. If ctx ends first, the task ends
// in the same way. The task's resources are kept until the function is called or ctx ends.
//
// If ctx carries such a task already, or is the context of InTx's function, WithTask returns ctx
// as it is, and the returned function does nothing: only the call that began the task ends the
// task. An implicit task is different: httptask.Separate or Config.TaskKey began it for a program
// that may know nothing of tasks. In an implicit task WithTask begins a new task, as NewTask
// does, because a caller of WithTask wants other statements to join its transaction. The new task
// does not see the open transactions and the session state of the implicit task.
//
// The goroutines of a task may use it at the same time. Transactions nest in
// one goroutine: a second goroutine that wants a transaction of its own uses NewTask.
func WithTask(ctx context.Context) (context.Context, func()) { return task.With(ctx) }

// NewTask is WithTask, but always begins a new task. The new task shares nothing with a task that
// ctx carries. Use it for an audit record that has to stay when the transaction around it is
// rolled back, or for a goroutine with a transaction of its own. A new task inside the
// transaction of another task needs a connection of its own: see ErrDeadlock.
func NewTask(ctx context.Context) (context.Context, func()) {
	t := task.New(ctx)
	return t, t.End
}

// Outside returns a context without a task, for statements that belong to nobody's session. The
// context still ends when ctx ends, unless the program also uses context.WithoutCancel.
func Outside(ctx context.Context) context.Context { return task.Outside(ctx) }

// Do calls fn with the context of WithTask(ctx), and returns fn's error. If Do began the task, Do
// ends it before it returns, also when fn panics. If the task has ended before fn returns, and fn's
// error follows from that, errors.Is finds ErrTaskEnded in the error, too.
func Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errors.New("pooldriver: Do was given no function")
	}
	ctx, end := WithTask(ctx)
	defer end()
	return withTaskEnd(ctx, fn(ctx))
}

// withTaskEnd returns err with the end of the task of ctx, if the task has ended ctx, and err
// follows from that. The errors that database/sql makes itself do not mention the task.
func withTaskEnd(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), ErrTaskEnded) || !errors.Is(err, ctx.Err()) && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return ctxerr.WithEnd(ctx, err)
}

// AmbientMode says what happens to a task's statements that do not go through the *sql.Tx while a
// transaction of the task is open.
type AmbientMode uint8

const (
	// AmbientAuto is AmbientJoin for the tasks of WithTask, NewTask, Do, InTx and httptask.Join.
	// Implicit tasks (Config.TaskKey, httptask.Separate) share nothing. In every other mode
	// implicit tasks share as the other tasks do.
	AmbientAuto AmbientMode = iota
	// AmbientJoin runs the statement in the transaction. BeginTx begins a savepoint.
	AmbientJoin
	// AmbientWarn is AmbientJoin, and logs a warning, once per transaction.
	AmbientWarn
	// AmbientStrict refuses the statement with an error. BeginTx still begins a savepoint, and
	// the statements of InTx still run in its transaction.
	AmbientStrict
)

var ambientModes = [...]string{"auto", "join", "warn", "strict"}

// String is the mode as a DSN spells it.
func (m AmbientMode) String() string { return optiontable.WordOf(ambientModes[:], m) }

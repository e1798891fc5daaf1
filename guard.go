package pooldriver

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// Functions of the program's that are called for ourselves, and not for a caller who waits for
// their result (Observer, Credentials, the function of WithTaskKey), must not end the process
// by a panic, nor a statement that has nothing to do with them. The logger has its own guard
// (internal/repeated), because a guard reports to it. Those that the pool calls in a dial
// (AfterConnect, Dial, Credentials again) are guarded by the pool, whose PanicError the
// statement gets.

// guarded, deferred, ends a panic of function: it goes to the log with its stack, and to err.
func (c *core) guarded(function string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	p := &pool.PanicError{Hook: function, Value: v, Stack: debug.Stack()}
	c.log.Error("pooldriver: a function of the program's panicked", "target", c.template.Target(),
		"function", function, "panic", fmt.Sprintf("%T", v), "stack", string(p.Stack))
	*err = fmt.Errorf("pooldriver: %w", p)
}

// guardedKey is Config.TaskKey with a guard. A statement whose task is not known is refused.
func (c *core) guardedKey() task.KeyFunc {
	of := c.config.TaskKey
	if of == nil {
		return nil
	}
	return func(ctx context.Context) (key any, lifetime context.Context) {
		var err error
		defer func() {
			if err != nil {
				key, lifetime = task.NoKey{Why: err}, ctx
			}
		}()
		defer c.guarded("Config.TaskKey", &err)
		return of(ctx)
	}
}

package pooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/task"
)

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
		defer c.report.Guarded("Config.TaskKey", &err)
		return of(ctx)
	}
}

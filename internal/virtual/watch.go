package virtual

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/task"
)

var uses = [...]beneath.Use{
	executing: beneath.UseExec, querying: beneath.UseQuery, preparing: beneath.UsePrepare, beginning: beneath.UseBegin,
	lending: beneath.UseRaw, pinging: beneath.UsePing, attaching: beneath.UseOther,
}

// enter begins an operation. false: it has ended, with c.refused.
//
//go:noinline
func enter(ctx context.Context, op *operation) bool {
	var answered bool
	answered, op.c.refused = op.c.watcher.Enter(ctx, uses[op.kind], op.Text)
	return !answered && op.c.refused == nil
}

// leave ends an operation.
//
//go:noinline
func leave(c *checkout) {
	var t *task.Task
	if c.held.Bound() {
		t = c.held.Task()
	}
	c.watcher.Leave(t)
}

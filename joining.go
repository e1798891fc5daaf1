package pooldriver

import (
	"context"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/task"
)

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

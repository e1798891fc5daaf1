package pooldriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/task"
)

// ambient is the mode of the task on this connector.
func (b *binding) ambient() AmbientMode {
	switch mode := b.connector.config.Ambient; {
	case mode != AmbientAuto:
		return mode
	case b.task.Implicit():
		return AmbientSeparate
	}
	return AmbientJoin
}

// errSeparate: the statement does not join the transaction; it needs another connection.
var errSeparate = errors.New("pooldriver: separate")

// joinsTx decides, under r's lock, whether a statement may join the transaction on r,
// which is not its own. The error says why not.
func (b *binding) joinsTx(r *realConn, op *operation) error {
	switch b.ambient() {
	case AmbientSeparate:
		return errSeparate
	case AmbientStrict:
		if op.kind != beginning {
			return fmt.Errorf("pooldriver: %s has a transaction open (%s), and pool_ambient=strict keeps other statements out of it; use the *sql.Tx, InTx, or a context of Outside or NewTask", b.task.Name(), ago(r.use.since))
		}
	case AmbientWarn:
		if !r.use.warned {
			r.use.warned = true
			b.connector.log.Warn("pooldriver: a statement joined its task's transaction", "target", b.connector.template.Target(), "task", b.task.Name(), "open", ago(r.use.since))
		}
	}
	if t := r.Innermost(); t != nil {
		t.Join()
	}
	return nil
}

// nests reports whether a BeginTx inside the transaction on r begins a savepoint. With
// AmbientSeparate it does so only in InTx. Any other BeginTx on a *sql.Conn that is in a
// transaction goes to the driver.
func (c *checkout) nests(r *realConn) bool {
	return c.bound.ambient() != AmbientSeparate || c.scoped(r) != nil
}

// findPlace writes to p, which is empty, the task of ctx on this connector, with its InTx
// and the task around it.
func (c *core) findPlace(ctx context.Context, p *task.Place) error {
	return c.keyedTasks.Find(ctx, c.config.TaskKey, p)
}

// bindTo returns the binding of t on c, and creates it if there is none.
func (c *core) bindTo(t *task.Task) (*binding, error) {
	m, err := t.Member(c, c.config.TaskTimeout, func() task.Member { return &binding{task: t, connector: c} })
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

package pooldriver

import (
	"errors"
	"fmt"
)

// AmbientMode says what happens to a statement of a task, other than through
// the *sql.Tx, while a transaction of the task is open.
type AmbientMode uint8

const (
	// AmbientAuto is AmbientJoin for tasks made by WithTask, NewTask, Do and
	// InTx, and httptask.Join, and AmbientSeparate for implicit ones
	// (WithTaskKey, httptask.Separate).
	AmbientAuto AmbientMode = iota
	// AmbientJoin runs it in the transaction. BeginTx begins a savepoint.
	AmbientJoin
	// AmbientWarn is AmbientJoin, and logs a warning, once per transaction.
	AmbientWarn
	// AmbientStrict is an error. BeginTx, and what runs in InTx, nest.
	AmbientStrict
	// AmbientSeparate runs it on a connection of its own, as plain
	// database/sql does. So does BeginTx.
	AmbientSeparate
)

var ambientModes = [...]string{"auto", "join", "warn", "strict", "separate"}

// String is the mode as a DSN spells it.
func (m AmbientMode) String() string {
	if int(m) < len(ambientModes) {
		return ambientModes[m]
	}
	return fmt.Sprintf("AmbientMode(%d)", uint8(m))
}

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

// errSeparate: the statement does not join, it needs another connection.
var errSeparate = errors.New("pooldriver: separate")

// joinsTx decides on a statement that is not the transaction's own, under r's lock.
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

// nests reports whether a BeginTx in the transaction on r is a savepoint. With
// AmbientSeparate only one in InTx is; what others do on a *sql.Conn that is in a
// transaction is the driver's business.
func (c *conn) nests(r *realConn) bool {
	return c.bound.ambient() != AmbientSeparate || c.scoped(r) != nil
}

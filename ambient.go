package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/internal/implicit"
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
	case b.task.implicit:
		return AmbientSeparate
	}
	return AmbientJoin
}

// errSeparate: the statement does not join, it needs another connection.
var errSeparate = errors.New("pooldriver: separate")

// join decides on a statement that is not the transaction's own, under r's lock.
func (b *binding) join(r *realConn, t *operation) error {
	switch b.ambient() {
	case AmbientSeparate:
		return errSeparate
	case AmbientStrict:
		if !t.begins {
			return fmt.Errorf("pooldriver: %s has a transaction open (%s), and pool_ambient=strict keeps other statements out of it; use the *sql.Tx, InTx, or a context of Outside or NewTask", b.task.name(), ago(r.seat.since))
		}
	case AmbientWarn:
		if !r.seat.warned {
			r.seat.warned = true
			b.connector.log.Warn("pooldriver: a statement joined its task's transaction", "target", b.connector.template.Target(), "task", b.task.name(), "open", ago(r.seat.since))
		}
	}
	if t := r.innermost(); t != nil {
		t.joined = true
	}
	return nil
}

// own is the transaction on r that what c does belongs to: the one that it has begun, or
// that of the InTx whose scope it is in.
func (c *conn) own(r *realConn) *tx {
	if c.tx != nil && c.tx.owner == r {
		return c.tx
	}
	return c.scoped(r)
}

// scoped is the transaction on r of the InTx whose scope c was attached in.
func (c *conn) scoped(r *realConn) *tx {
	if tx := c.scope.transaction(c.bound); tx != nil && tx.owner == r {
		return tx
	}
	return nil
}

// runs notes, under r's lock, that a statement is run on r by c.
func (c *conn) runs(r *realConn) {
	if n := len(r.seat.inner); n > 0 {
		if own := c.own(r); own != nil && own.reach < n {
			own.reach = n
		}
	}
}

// nests reports whether a BeginTx in the transaction on r is a savepoint. With
// AmbientSeparate only one in InTx is; what others do on a *sql.Conn that is in a
// transaction is the driver's business.
func (c *conn) nests(r *realConn) bool {
	return c.bound.ambient() != AmbientSeparate || c.scoped(r) != nil
}

// InTx runs fn in a transaction, which it commits if fn returns nil, and rolls
// back otherwise, also when fn panics. Whatever runs with fn's context belongs
// to the transaction, through db as well as through tx, in every AmbientMode;
// nothing else does in the modes strict and separate. After fn has returned, a
// statement with its context fails with sql.ErrTxDone. An InTx inside another
// is a savepoint.
//
// opts may be nil, as for db.BeginTx. Where ctx carries no task InTx makes one
// for its time. db has to be a handle of this package. An error of fn is
// returned as it is.
func InTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	switch {
	case db == nil:
		return errors.New("pooldriver: InTx was given no *sql.DB")
	case fn == nil:
		return errors.New("pooldriver: InTx was given no function")
	}
	p := placeOf(ctx)
	if p.task == nil { // joining is exact in an implicit one, too
		t := newTask(ctx, p)
		defer t.end()
		ctx, p = t, placeOf(t)
	}
	s := &txScope{Context: ctx, task: p.task, around: p.scope}
	defer s.over.Store(true)
	tx, err := db.BeginTx(s, opts)
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		s.over.Store(true)
		if !committed {
			_ = tx.Rollback() // fn's error, or panic, is what counts
		}
	}()
	if s.tx.Load() == nil {
		return errors.New("pooldriver: InTx was given a handle of another driver")
	}
	if err := fn(s, tx); err != nil {
		return err
	}
	committed = true
	return tx.Commit()
}

// txScope is the context of InTx's function.
type txScope struct {
	context.Context
	task   *task
	around *txScope
	tx     atomic.Pointer[tx]
	over   atomic.Bool // the function has returned
}

func (s *txScope) Value(key any) any {
	if _, ok := key.(implicit.Key); ok {
		return s
	}
	return s.Context.Value(key)
}

// begun makes t the transaction of the InTx that has called BeginTx.
func (s *txScope) begun(t *tx) {
	if s != nil {
		s.tx.CompareAndSwap(nil, t)
	}
}

// transaction is that of the innermost InTx on b's connector whose transaction has
// begun.
func (s *txScope) transaction(b *binding) *tx {
	for ; s != nil; s = s.around {
		if t := s.tx.Load(); t != nil && t.bound == b {
			return t
		}
	}
	return nil
}

// ended reports whether a function has returned whose context this is, or is
// derived from.
func (s *txScope) ended() bool {
	for ; s != nil; s = s.around {
		if s.over.Load() {
			return true
		}
	}
	return false
}

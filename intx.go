package pooldriver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pooldriver/pooldriver/internal/task"
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back
// otherwise, also when fn panics. Whatever runs with fn's context belongs to the
// transaction, through db as well as through tx, in every AmbientMode. In the modes
// strict and separate nothing else belongs to it. After fn has returned, a statement
// with its context fails with sql.ErrTxDone. An InTx inside another one is a
// savepoint.
//
// opts may be nil, as for db.BeginTx. If ctx carries no task, InTx begins one, and
// ends it when it returns. db has to be a handle of this package. An error of fn is
// returned as it is.
func InTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	switch {
	case db == nil:
		return errors.New("pooldriver: InTx was given no *sql.DB")
	case fn == nil:
		return errors.New("pooldriver: InTx was given no function")
	}
	s := task.NewScope(ctx)
	defer s.End()
	tx, err := db.BeginTx(s, opts)
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		s.Leave()
		if !committed {
			_ = tx.Rollback() // fn's error, or panic, is what counts
		}
	}()
	if s.Transaction() == nil {
		return errors.New("pooldriver: InTx was given a handle of another driver")
	}
	if err := fn(s, tx); err != nil {
		return err
	}
	committed = true
	return tx.Commit()
}

// transactionOf returns the transaction of the innermost InTx around scope, itself
// included, that has begun one on b's connector; nil if there is none.
func (b *binding) transactionOf(scope *task.Scope) *tx {
	for s := scope; s != nil; s = s.Around() {
		if t, ok := s.Transaction().(*tx); ok && t.bound == b {
			return t
		}
	}
	return nil
}

// own returns the transaction on r that an operation of c belongs to: the one that c
// has begun, or that of the InTx in whose scope c was attached.
func (c *conn) own(r *realConn) *tx {
	if c.tx != nil && c.tx.owner == r {
		return c.tx
	}
	return c.scoped(r)
}

// scoped returns the transaction on r of the InTx in whose scope c was attached.
func (c *conn) scoped(r *realConn) *tx {
	if tx := c.bound.transactionOf(c.scope); tx != nil && tx.owner == r {
		return tx
	}
	return nil
}

// ran records, under r's lock, that c has run a statement on r.
func (c *conn) ran(r *realConn) {
	if r.Depth() > 0 {
		if own := c.own(r); own != nil {
			own.Ran()
		}
	}
}

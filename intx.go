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
		return errors.New("pooldriver: InTx has begun a transaction that pooldriver does not know, and rolled it back: the *sql.DB is another driver's, or a wrapper above pooldriver does not pass the context of BeginTx on; use a *sql.DB over a pooldriver.Connector")
	}
	if err := fn(s, tx); err != nil {
		return err
	}
	committed = true
	return tx.Commit()
}

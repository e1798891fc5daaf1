package pooldriver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/virtual"
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back otherwise, also
// when fn panics. Everything that runs with fn's context belongs to the transaction, through db
// as well as through tx, in every AmbientMode. In the mode strict nothing else belongs to the
// transaction. After fn has returned, a statement with fn's context fails: with sql.ErrTxDone inside a
// task that goes on, and else as after the end of any task (see [ErrTaskEnded]). An InTx inside another
// InTx is a savepoint.
//
// opts may be nil, as for db.BeginTx. If ctx carries no explicit task, InTx begins one, and
// ends it when it returns. db has to be a handle of this package. An error of fn is
// returned as it is. If the task has ended before fn returns, and the error follows from that,
// errors.Is finds ErrTaskEnded in the error, too.
//
// With a Retry, InTx runs the transaction once more if other transactions were in its way: see
// [Retry].
func InTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error, retry ...Retry) error {
	switch {
	case db == nil:
		return errors.New("pooldriver: InTx was given no *sql.DB")
	case fn == nil:
		return errors.New("pooldriver: InTx was given no function")
	case len(retry) > 1:
		return errors.New("pooldriver: InTx was given more than one Retry")
	case len(retry) == 1:
		return retry[0].run(ctx, func() (*report.Report, error) { return inTx(ctx, db, opts, fn) })
	}
	_, err := inTx(ctx, db, opts, fn)
	return err
}

// inTx is one attempt of InTx. If the attempt has failed because another transaction was in the
// way, and may be repeated, conflict is not nil and counts the repetition. The transaction is
// then rolled back, and is not part of another one.
func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (conflict *report.Report, failed error) {
	s := task.NewScope(ctx)
	defer func() {
		failed = withTaskEnd(s, failed)
		s.End()
	}()
	ended := ctx.Err() != nil
	begun, err := db.BeginTx(s, opts)
	if err != nil {
		return virtual.BeginConflict(s), waitedAbove(db, s, ended, err)
	}
	committed := false
	defer func() {
		s.Leave()
		if !committed {
			_ = begun.Rollback() // fn's error, or panic, is what counts
		}
	}()
	own, ok := virtual.InTxOf(s)
	if !ok {
		return nil, errors.New("pooldriver: InTx has rolled back its transaction, because the transaction did not go through pooldriver: the *sql.DB uses another driver, or a wrapper does not pass on the context of BeginTx; use a *sql.DB over a pooldriver.Connector")
	}
	if r := own.Report(); r.FirstInTx() {
		r.OpenLimit(db.Stats().MaxOpenConnections)
	}
	if err := fn(s, begun); err != nil {
		return own.Conflict(err), err
	}
	committed = true
	if err := begun.Commit(); err != nil {
		return own.CommitConflict(), err
	}
	return nil, nil
}

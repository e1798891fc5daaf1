package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/task"
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back
// otherwise, also when fn panics. Whatever runs with fn's context belongs to the
// transaction, through db as well as through tx, in every AmbientMode. In the mode strict
// nothing else belongs to it. After fn has returned, a statement with its context fails with
// sql.ErrTxDone. An InTx inside another one is a savepoint.
//
// opts may be nil, as for db.BeginTx. If ctx carries no explicit task, InTx begins one, and
// ends it when it returns. db has to be a handle of this package. An error of fn is
// returned as it is.
//
// With a Retry, a transaction that other transactions were in the way of is run once more:
// see [Retry].
func InTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error, retry ...Retry) error {
	switch {
	case db == nil:
		return errors.New("pooldriver: InTx was given no *sql.DB")
	case fn == nil:
		return errors.New("pooldriver: InTx was given no function")
	case len(retry) > 1:
		return errors.New("pooldriver: InTx was given more than one Retry")
	case len(retry) == 1:
		return retry[0].run(ctx, func() (*core, error) { return inTx(ctx, db, opts, fn) })
	}
	_, err := inTx(ctx, db, opts, fn)
	return err
}

// inTx is one attempt of InTx. conflict is not nil if it has failed because another
// transaction was in the way, and may be repeated: the transaction is rolled back, and is
// not part of another one. conflict is then the core.
func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (conflict *core, _ error) {
	s := task.NewScope(ctx)
	defer s.End()
	begun, err := db.BeginTx(s, opts)
	if err != nil {
		conflict, _ = s.Conflict().(*core)
		return conflict, err
	}
	committed := false
	defer func() {
		s.Leave()
		if !committed {
			_ = begun.Rollback() // fn's error, or panic, is what counts
		}
	}()
	own, ok := s.Transaction().(*transaction)
	if !ok {
		return nil, errors.New("pooldriver: InTx has begun a transaction that pooldriver does not know, and rolled it back: the *sql.DB is another driver's, or a wrapper above pooldriver does not pass the context of BeginTx on; use a *sql.DB over a pooldriver.Connector")
	}
	if err := fn(s, begun); err != nil {
		return own.conflictIn(err), err
	}
	committed = true
	if err := begun.Commit(); err != nil {
		return own.commitConflict(), err
	}
	return nil, nil
}

// conflictIn returns t's core if err, of a statement of t, says that another
// transaction was in the way, and t is not part of another transaction. An error of which
// a part says that the outcome of something is unknown is not one to repeat. What fn has
// committed itself is repeated only if that commit was the conflict.
func (t *transaction) conflictIn(err error) *core {
	if t.commits {
		return t.commitConflict()
	}
	c := t.checkout.connector
	if t.Nested() || errors.Is(err, io.ErrUnexpectedEOF) || !t.mayRepeat(c.dialect.Diagnose(err)) {
		return nil
	}
	return c
}

// mayRepeat reports whether t may succeed if it is run once more: another transaction was in
// its way, or its server takes no writes any more, and the DSN leads to others.
func (t *transaction) mayRepeat(said dialects.Diagnosis) bool {
	return said&dialects.Conflict != 0 ||
		said&dialects.RoleDoubt != 0 && t.owner.Traits().RoleMatters && !t.ReadOnly()
}

// commitConflict is conflictIn for the error of t's Commit. A commit in doubt has none: only
// the server's own answer is a conflict.
func (t *transaction) commitConflict() *core {
	if t.Nested() || !t.CommitConflict() {
		return nil
	}
	return t.checkout.connector
}

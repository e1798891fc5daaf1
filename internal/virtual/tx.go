package virtual

import (
	"database/sql/driver"
	"errors"
	"io"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/task"
)

// transaction is a transaction of a virtual connection.
type transaction struct {
	binding.Tx

	checkout *checkout
	commits  bool // Commit was called
}

var _ driver.Tx = (*transaction)(nil)

// What Holders shows while a transaction begins and ends. The texts are the driver's, and differ
// by database.
var textBegin, textCommit, textRollback = "BEGIN", "COMMIT", "ROLLBACK"

var (
	// errTxOptions refuses a BeginTx inside a transaction whose options are different.
	errTxOptions = errors.New("pooldriver: a transaction inside another transaction of its task is a savepoint, and has the isolation level and access mode of that transaction; give BeginTx the same options or none, or use NewTask for a separate transaction")
	errEndInRaw  = errors.New("pooldriver: Commit was called while a function of Raw has the connection of the transaction: the transaction is rolled back when the function returns; commit after the function")
)

// Commit commits. An error of the driver leaves it open whether the transaction has ended;
// an error of ours means that it was rolled back.
func (t *transaction) Commit() error {
	defer t.checkout.endEarly()
	t.commits = true
	t.Leave()
	if t.endsAfterRaw() {
		return errEndInRaw
	}
	if t.checkout.refusal == errRawClosed && !t.InTask() {
		t.Release()
		return errRawClosed
	}
	if !t.Attached() {
		t.Release()
		return t.Refused()
	}
	return t.Finish(&textCommit, t.Tx.Commit)
}

// Rollback rolls back. database/sql calls it too when the context of BeginTx has ended.
func (t *transaction) Rollback() error {
	defer t.checkout.endEarly()
	t.Leave()
	if t.endsAfterRaw() {
		return nil
	}
	if !t.Attached() {
		t.Release()
		return nil
	}
	err := t.Finish(&textRollback, t.End)
	if errors.Is(err, task.ErrEnded) && t.TaskEnded() {
		return nil // it is rolled back then
	}
	return err
}

// endsAfterRaw reports whether a function of Raw has the connection of t, and lets t be
// rolled back when the function returns. In a task it does nothing: Finish waits for the
// function.
func (t *transaction) endsAfterRaw() bool {
	l := t.checkout.loan
	if l == nil || !t.IsLent() {
		return false
	}
	l.later = append(l.later, func() { _ = t.Finish(&textRollback, t.End) })
	return true
}

// InTx is the transaction of an InTx.
type InTx struct{ t *transaction }

// InTxOf is the transaction that scope has begun. ok is false if none of ours has begun there.
func InTxOf(scope *task.Scope) (_ InTx, ok bool) {
	t, ok := scope.Transaction().(*transaction)
	return InTx{t}, ok
}

// BeginConflict returns what a transaction is counted by that could not begin in scope because
// another one was in the way; nil: there was none.
func BeginConflict(scope *task.Scope) *report.Report {
	r, _ := scope.Conflict().(*report.Report)
	return r
}

// Conflict returns what a retry is counted by if err, of a statement of the transaction, says
// that another one was in the way, and it is not part of another transaction. Otherwise it is
// nil. An error of which a part says that the outcome of something is unknown is not one to
// repeat. What the program has committed itself is repeated only if that commit was the
// conflict.
func (x InTx) Conflict(err error) *report.Report {
	t := x.t
	if t.commits {
		return x.CommitConflict()
	}
	s := t.checkout.source
	if t.Nested() || errors.Is(err, io.ErrUnexpectedEOF) || !t.mayRepeat(s.config.Dialect.Diagnose(err)) {
		return nil
	}
	return s.report
}

// mayRepeat reports whether t may succeed if it is run once more: another transaction was in
// its way, or its server takes no writes any more, and the DSN leads to others.
func (t *transaction) mayRepeat(said dialects.Diagnosis) bool {
	return said&dialects.Conflict != 0 ||
		said&dialects.RoleDoubt != 0 && t.Conn().Traits().RoleMatters && !t.ReadOnly()
}

// CommitConflict is Conflict for the error of the transaction's Commit. A commit in doubt has
// none: only the server's own answer is a conflict.
func (x InTx) CommitConflict() *report.Report {
	if x.t.Nested() || !x.t.Tx.CommitConflict() {
		return nil
	}
	return x.t.checkout.source.report
}

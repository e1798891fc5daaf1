package virtual

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/task"
)

// transaction is a transaction of a virtual connection.
type transaction struct {
	held binding.Tx

	checkout *checkout
	commits  bool   // Commit was called
	reusable bool   // database/sql has a txHandle, and not the transaction itself
	uses     uint64 // how many transactions have used this object before
}

// txHandle is the driver.Tx that database/sql gets for a transaction whose object is used again. A
// wrapper between database/sql and us may end a transaction twice: then use is an earlier use of t.
type txHandle struct {
	t   *transaction
	use uint64
}

// Commit commits.
func (h txHandle) Commit() error {
	if h.t.uses != h.use {
		return sql.ErrTxDone
	}
	return h.t.Commit()
}

// Rollback rolls back.
func (h txHandle) Rollback() error {
	if h.t.uses != h.use {
		return sql.ErrTxDone
	}
	return h.t.Rollback()
}

var (
	_ driver.Tx = (*transaction)(nil)
	_ driver.Tx = txHandle{}
)

// The texts that Holders shows while a transaction begins and ends. The driver's own texts differ by
// database.
var textBegin, textCommit, textRollback = "BEGIN", "COMMIT", "ROLLBACK"

var (
	// errTxOptions refuses a BeginTx inside a transaction whose options are different.
	errTxOptions = errors.New("pooldriver: a transaction inside another transaction of its task is a savepoint, and has the isolation level and access mode of that transaction; give BeginTx the same options or none, or use NewTask for a separate transaction")
	errEndInRaw  = errors.New("pooldriver: Commit was called while a function of Raw has the connection of the transaction: the transaction is rolled back when the function returns; commit after the function")
)

// Commit commits. After an error of the driver the transaction may have ended or not. After an
// error of ours it was rolled back.
func (t *transaction) Commit() error {
	defer t.checkout.endEarly()
	if !t.held.Leave() {
		return sql.ErrTxDone
	}
	if w := t.checkout.watcher; w != nil {
		defer w.Ended()
	}
	t.commits = true
	if t.endsAfterRaw() {
		return errEndInRaw
	}
	if t.checkout.refusal == errRawClosed && !t.held.InTask() {
		t.held.Tx.Release()
		return errRawClosed
	}
	if !t.held.Attached() {
		t.held.Tx.Release()
		return t.held.Tx.Refused()
	}
	err := t.held.Finish(&textCommit, t.held.Tx.Commit)
	t.recycle()
	return err
}

// Rollback rolls back. database/sql also calls Rollback when the context of BeginTx has ended.
func (t *transaction) Rollback() error {
	defer t.checkout.endEarly()
	if !t.held.Leave() {
		return sql.ErrTxDone
	}
	if w := t.checkout.watcher; w != nil {
		defer w.Ended()
	}
	if t.endsAfterRaw() {
		return nil
	}
	if !t.held.Attached() {
		t.held.Tx.Release()
		return nil
	}
	err := t.held.Finish(&textRollback, t.held.Tx.End)
	if errors.Is(err, task.ErrEnded) && t.held.TaskEnded() {
		return nil // the task's end rolls the transaction back
	}
	t.recycle()
	return err
}

// Held is t as the statements find it that run in the scope of its InTx.
func (t *transaction) Held() *binding.Tx { return &t.held }

// handedOut is what database/sql gets of t. scope is that of its InTx, which may ask for t later.
func (t *transaction) handedOut(scope *task.Scope) driver.Tx {
	if w := t.checkout.watcher; w != nil {
		w.Begun(t.held.Tx.Context())
	}
	if scope != nil || t.held.InTask() {
		return t
	}
	t.reusable = true
	return txHandle{t, t.uses}
}

// recycle keeps t, which has ended, for the next transaction of its virtual connection. Only
// database/sql had access to t, by the txHandle.
func (t *transaction) recycle() {
	if c := t.checkout; t.reusable && !c.held.HasTx() {
		*t = transaction{uses: t.uses + 1}
		c.spareTx = t
	}
}

// endsAfterRaw reports whether a function of Raw has the connection of t. If so, t is rolled back
// when the function returns. In a task endsAfterRaw does nothing: Finish waits for the function.
func (t *transaction) endsAfterRaw() bool {
	l := t.checkout.loan
	if l == nil || !t.held.IsLent() {
		return false
	}
	l.later = append(l.later, func() { _ = t.held.Finish(&textRollback, t.held.Tx.End) })
	return true
}

// InTx is the transaction of an InTx.
type InTx struct{ t *transaction }

// InTxOf is the transaction that scope has begun. ok is false if scope has begun none of ours.
func InTxOf(scope *task.Scope) (_ InTx, ok bool) {
	t, ok := scope.Transaction().(*transaction)
	return InTx{t}, ok
}

// Report returns the report of the transaction's connector.
func (x InTx) Report() *report.Report { return x.t.checkout.source.report }

// BeginConflict returns the report that counts a retry, if a transaction could not begin in scope
// because of a conflict with another transaction; nil: there was no conflict.
func BeginConflict(scope *task.Scope) *report.Report {
	r, _ := scope.Conflict().(*report.Report)
	return r
}

// Conflict returns the report that counts a retry, if err, the error of a statement of the
// transaction, says that another transaction was in the way. It returns nil if err says something
// else, or if the transaction is part of another one. A transaction is not repeated if a part of
// err says that the outcome of something is unknown. A transaction that the program has committed
// itself is repeated only if that commit was the conflict.
func (x InTx) Conflict(err error) *report.Report {
	t := x.t
	if t.commits {
		return x.CommitConflict()
	}
	s := t.checkout.source
	if t.held.Tx.Nested() || errors.Is(err, io.ErrUnexpectedEOF) || !t.mayRepeat(s.config.Dialect.Diagnose(err)) {
		return nil
	}
	return s.report
}

// mayRepeat reports whether t may succeed if t is run once more: t conflicted with another transaction,
// or the server takes no writes any more, and the DSN leads to other servers.
func (t *transaction) mayRepeat(said dialects.Diagnosis) bool {
	return said&dialects.Conflict != 0 ||
		said&dialects.RoleDoubt != 0 && t.checkout.source.traits.RoleMatters && !t.held.Tx.ReadOnly()
}

// CommitConflict is Conflict for the error of the transaction's Commit. A commit with an unknown
// outcome has no conflict: only the server's own answer is a conflict.
func (x InTx) CommitConflict() *report.Report {
	if x.t.held.Tx.Nested() || !x.t.held.Tx.CommitConflict() {
		return nil
	}
	return x.t.checkout.source.report
}

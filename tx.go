package pooldriver

import (
	"database/sql/driver"
	"errors"
)

var _ driver.Tx = (*transaction)(nil)

// Commit commits. An error of the driver leaves it open whether the transaction has ended;
// an error of ours means that it was rolled back.
func (t *transaction) Commit() error {
	defer t.checkout.endEarly()
	t.commits = true
	t.leave()
	if t.endsAfterRaw() {
		return errEndInRaw
	}
	if t.checkout.refusal == errRawClosed && (t.bound == nil || t.bound.isPrivate()) {
		t.Release()
		return errRawClosed
	}
	if t.owner == nil {
		t.Release()
		return t.Refused()
	}
	return t.finish(t.Tx.Commit)
}

// Rollback rolls back. database/sql calls it too when the context of BeginTx has ended.
func (t *transaction) Rollback() error {
	defer t.checkout.endEarly()
	t.leave()
	if t.endsAfterRaw() {
		return nil
	}
	if t.owner == nil {
		t.Release()
		return nil
	}
	err := t.finish(t.End)
	if errors.Is(err, ErrTaskEnded) && t.bound.ended.Load() {
		return nil // it is rolled back then
	}
	return err
}

package session

import (
	"context"
	"database/sql/driver"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// Tx is a transaction on a session. In a task, a transaction that begins while another one
// is open is a savepoint. The session's lock protects its fields, except those that do not
// change.
type Tx struct {
	session   *Session  // nil: deferred, and without a session yet
	real      driver.Tx // nil: not begun, or a savepoint
	savepoint string    // its name; empty: not a savepoint
	opts      driver.TxOptions
	ctx       context.Context                   // BeginTx's
	kept      *txContext                        // what the driver got, under the trait TxKeepsContext
	merged    atomic.Pointer[mergedctx.Context] // bounds the begin; nil after Release
	refused   error                             // why a deferred begin has failed
	since     time.Time
	// replaced: the driver has begun another transaction on the same session, although this one
	// was open. The driver decides what that means.
	replaced bool
	joined   bool // statements that belong to no transaction of BeginTx ran in it
	// outer are the transactions around it whose own statements ran in it.
	outer    []*Tx
	conflict bool  // the driver's COMMIT has failed with dialects.Conflict
	lost     error // why it cannot be committed; nil: it can
}

// Init makes t a transaction that has not begun.
func (t *Tx) Init(ctx context.Context, opts driver.TxOptions) { t.ctx, t.opts = ctx, opts }

// Context is BeginTx's. It needs no lock.
func (t *Tx) Context() context.Context { return t.ctx }

// Nested reports whether t is a savepoint. It needs no lock.
func (t *Tx) Nested() bool { return t.savepoint != "" }

// TxCause is why the context of the open transaction has ended; nil: it has not ended.
func (s *Session) TxCause() error {
	if s.tx == nil {
		return nil
	}
	return context.Cause(s.tx.ctx)
}

// ReadOnly reports whether the program has begun it as a read-only one.
func (t *Tx) ReadOnly() bool { return t.opts.ReadOnly }

// CommitConflict reports whether Commit has failed because another transaction was in the
// way. It needs no lock after Commit.
func (t *Tx) CommitConflict() bool { return t.conflict }

// Lost is why the transaction cannot be committed: its own statements ran inside a savepoint
// whose context has ended. It is nil otherwise.
func (t *Tx) Lost() error { return t.lost }

// Refused is why a deferred begin has failed.
func (t *Tx) Refused() error { return t.refused }

// Refuse makes a deferred begin fail: there was no connection for it.
func (t *Tx) Refuse(why error) { t.refused = why }

// Join records that a statement that belongs to no transaction of BeginTx ran in t.
func (t *Tx) Join() { t.joined = true }

// Ran records in the open savepoints inside t that a statement of t's own ran in them.
func (t *Tx) Ran() {
	for _, inside := range t.deeper() {
		if !slices.Contains(inside.outer, t) {
			inside.outer = append(inside.outer, t)
		}
	}
}

// Release frees the context that bounded the begin. It needs no lock.
func (t *Tx) Release() {
	if t.merged.Load() != nil {
		t.merged.Swap(nil).Release()
	}
}

// Begun reports whether a transaction of BeginTx is open, or was open when the connection
// died.
func (s *Session) Begun() bool { return s.tx != nil || len(s.inner) > 0 }

// HasTx reports whether BeginTx has begun the outermost transaction.
func (s *Session) HasTx() bool { return s.tx != nil }

// Depth is the number of savepoints that are open.
func (s *Session) Depth() int { return len(s.inner) }

// InTx reports whether a transaction is open, by BeginTx or by a text.
func (s *Session) InTx() bool { return s.Begun() || s.inDriversTx() }

// inDriversTx reports whether a transaction is open by the server's last answer.
func (s *Session) inDriversTx() bool {
	status := s.TxStatus()
	return status == dialects.TxOpen || status == dialects.TxFailed
}

// Innermost is the transaction or savepoint in which the next statement runs. It is nil if
// none is open, or if a text has begun it.
func (s *Session) Innermost() *Tx {
	if n := len(s.inner); n > 0 {
		return s.inner[n-1]
	}
	return s.tx
}

// at is the transaction at a depth. Depth 0 is the outermost one: nil if a text has begun it.
func (s *Session) at(depth int) *Tx {
	if depth == 0 {
		return s.tx
	}
	return s.inner[depth-1]
}

// Outlived is the outermost transaction whose context has ended, nil if there is none.
// database/sql is about to roll it back in a goroutine of its own. The caller may do so
// first.
func (s *Session) Outlived() *Tx {
	for depth := range len(s.inner) + 1 {
		if t := s.at(depth); t != nil && t.ctx.Err() != nil {
			return t
		}
	}
	return nil
}

// TxLost reports whether a transaction of BeginTx is gone that the program has not ended yet, so that further
// statements would run outside of it. Without a task, the driver itself says that a connection is lost.
//
// After each error TxLost asks a database that may roll a transaction back by itself. It is called before
// a statement, and before the end of the transaction.
func (s *Session) TxLost() bool {
	return (s.txFailed || s.health >= txGone) && txLost(s)
}

// txLost is the part of TxLost that is rarely needed, so that TxLost is inlined.
func txLost(s *Session) bool {
	if a, ok := s.server.(dialects.TxAsker); ok && s.txFailed && s.tx != nil && s.tx.hasBegun() && !s.Unusable() {
		switch s.askTx(a) {
		case dialects.TxNone:
			s.TxEnded()
		case dialects.TxUnknown: // rows are open, so the next statement fails as the last one
			return s.health == txGone && s.Begun()
		}
	}
	s.txFailed = false
	return (s.health == txGone || s.health == unusable && s.inTask) && s.Begun()
}

func (s *Session) askTx(a dialects.TxAsker) dialects.TxStatus {
	if s.guard != nil {
		return s.status()
	}
	return a.AskTx()
}

// TxEnded records that the server has ended the transaction by an error.
func (s *Session) TxEnded() { s.health = s.health.after(txEnded) }

// Open reports whether t is open on its session.
func (t *Tx) Open() bool {
	return t.session.tx == t || slices.Contains(t.session.inner, t)
}

// OverOn reports whether t is over for a statement on s. If t is of another session, it is over, and that session may be
// another one's by now, under a lock of its own.
func (t *Tx) OverOn(s *Session) bool { return t.session != s || !t.Open() && !t.replaced }

// deeper are the open savepoints inside t.
func (t *Tx) deeper() []*Tx {
	inner := t.session.inner
	return inner[slices.Index(inner, t)+1:]
}

// Began makes t the outermost transaction. Begin has begun it, or Defer has deferred it.
func (s *Session) Began(t *Tx, since time.Time) {
	s.schemaGeneration++
	if before := s.tx; before != nil {
		before.replaced = true
	}
	t.session, t.since = s, since
	s.tx = t
}

// Savepoint begins t as a savepoint in the transaction that is open. After a success
// BeganSavepoint follows.
func (s *Session) Savepoint(ctx context.Context, t *Tx) error {
	t.session, t.savepoint = s, "pooldriver_"+strconv.Itoa(len(s.inner)+1)
	s.call()
	err := s.Command(ctx, s.traits.SavepointTexts().Begin+" "+t.savepoint)
	s.returned()
	return err
}

// BeganSavepoint makes t, which Savepoint has begun, the innermost transaction.
func (s *Session) BeganSavepoint(t *Tx, since time.Time) {
	t.since = since
	s.inner = append(s.inner, t)
}

// TxOptions are the options of the outermost transaction that is open.
func (s *Session) TxOptions() driver.TxOptions {
	if s.tx == nil {
		return driver.TxOptions{}
	}
	return s.tx.opts
}

// Since is when the outermost transaction has begun.
func (s *Session) Since() time.Time {
	if s.tx != nil {
		return s.tx.since
	}
	if len(s.inner) > 0 {
		return s.inner[0].since
	}
	return time.Time{}
}

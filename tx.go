package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// suspectTx is the effect of a transaction that did not begin as it should.
const suspectTx = dialects.Suspect | dialects.TxControl

// tx is a transaction on the real connection of one checkout. In a task, one
// that begins while another is open is a savepoint in it.
type tx struct {
	conn      *conn
	owner     *realConn
	bound     *binding  // of a task; nil without
	real      driver.Tx // nil: not begun yet, or a savepoint,
	savepoint string    // of this name
	opts      driver.TxOptions
	ctx       context.Context                   // BeginTx's
	kept      *txContext                        // what the driver got instead, where it keeps it
	merged    atomic.Pointer[mergedctx.Context] // what the driver has begun it with, until it ends
	refused   error                             // why it could not begin, where that was tried late
	// replaced: the driver has begun another one on the same connection, and
	// has the last word on what that means.
	replaced bool
	around   *tx  // of the same virtual connection, that goes on when this one ends
	over     bool // Commit or Rollback was called

	// Under the lock:
	joined bool  // statements that are no transaction's ran in it
	reach  int   // so many savepoints were open, at most, where its own statements ran
	lost   error // a context that is not its own has ended a savepoint where they did
}

// begun makes tx the transaction of its checkout.
func (c *conn) begun(t *tx) *tx {
	t.around, c.tx = c.tx, t
	return t
}

// ends takes t from its checkout, whichever of its transactions ends first.
func (t *tx) ends() {
	t.over = true
	for c := t.conn; c.tx != nil && c.tx.over; {
		c.tx = c.tx.around
	}
}

// Commit commits. An error of the driver leaves it open whether the transaction
// has ended; an error of ours means that it was rolled back.
func (t *tx) Commit() error {
	t.ends()
	if t.endsAfterRaw() {
		return errEndInRaw
	}
	if t.bound == nil && t.conn.refusal == errRawClosed {
		t.merged.Swap(nil).Release()
		return errRawClosed
	}
	return t.guarded(t.commit)
}

func (t *tx) commit() (err error) {
	if t.bound == nil {
		if t.unbegun() {
			return t.refused
		}
		return t.commitReal()
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.bound.pass(t.owner)
	for _, deeper := range t.deeper() {
		if deeper.ctx.Err() != nil { // database/sql is about to roll it back
			_ = deeper.end()
			break
		}
	}
	lost := t.owner.lost()
	if t.unbegun() && !lost {
		t.forget()
		return t.refused
	}
	switch {
	case lost:
		err = t.owner.lostTx()
	case t.lost != nil:
		err = t.lost
	case len(t.deeper()) > 0:
		err = errOpenInside
	default:
		err = t.bound.clear(context.Background(), t.owner)
	}
	if err != nil {
		_ = t.rollback()
		return err
	}
	if t.savepoint != "" {
		if err = t.release(); err != nil {
			return err
		}
		t.forget()
		if outer := t.owner.innermost(); outer != nil {
			outer.joined = outer.joined || t.joined
		}
		return nil
	}
	err = t.commitReal()
	t.forget()
	if err != nil {
		t.insist() // SQLite's may be busy, and still open
	}
	return err
}

// Rollback rolls back. database/sql calls it too when the context of BeginTx
// has ended.
func (t *tx) Rollback() error {
	t.ends()
	if t.endsAfterRaw() {
		return nil
	}
	if t.bound == nil {
		return t.guarded(t.rollbackReal)
	}
	return t.guarded(t.rollbackBound)
}

func (t *tx) rollbackBound() error {
	if err := t.enter(); err != nil {
		if errors.Is(err, ErrTaskEnded) {
			return nil // it is rolled back then
		}
		return err
	}
	defer t.bound.pass(t.owner)
	return t.end()
}

// end rolls back, under the lock. Where that is not the program's doing,
// statements that count on the transaction do not know that it is over.
func (t *tx) end() error {
	tell := t.toldOfLoss()
	err := t.rollback()
	tell()
	return err
}

// endsAfterRaw lets t be rolled back when the function of Raw returns that has its
// connection. In a task enter sees to it.
func (t *tx) endsAfterRaw() bool {
	l := t.conn.lent
	if t.bound != nil || l == nil || t.owner != l.real {
		return false
	}
	l.later = append(l.later, func() { _ = t.guarded(t.rollbackReal) })
	return true
}

// toldOfLoss finds those who count on t and have not ended it. They are told that it is
// over, if its context has ended it.
func (t *tx) toldOfLoss() (tell func()) {
	s := &t.owner.seat
	joined, i, since := t.joined, slices.Index(s.inner, t), s.since
	for _, deeper := range t.deeper() {
		joined = joined || deeper.joined
	}
	var losing []*tx
	for depth := range i + 1 { // those around
		if around := s.at(depth); around != nil && around.reach > i {
			losing = append(losing, around)
		}
	}
	return func() {
		if t.ctx.Err() == nil {
			return
		}
		cause := whatEnded(t.ctx)
		if joined {
			t.bound.lossBarrier.Store(&lostError{what: whatTx, since: since, cause: cause})
		}
		for _, around := range losing {
			around.lost = &lostError{what: whatTx, since: since, cause: cause, inside: true}
		}
	}
}

// guarded ends the transaction. If the driver panics, database/sql does not give
// the checkout back: its connection ends here.
func (t *tx) guarded(end func() error) error {
	panicked := true
	defer func() {
		if panicked {
			t.wreck()
		}
		t.merged.Swap(nil).Release()
	}()
	err := end()
	panicked = false
	return err
}

func (t *tx) wreck() {
	if t.bound == nil {
		t.conn.discard()
		return
	}
	if t.bound.take(t.owner) {
		t.owner.broken = true
		if t.open() {
			t.forget()
		}
		if t.conn.real == t.owner {
			t.bound.standDown(t.conn, t.owner)
		}
		t.bound.pass(t.owner)
	}
}

// enter locks for the end of a transaction in a task.
func (t *tx) enter() error {
	for {
		if t.bound.ended.Load() {
			return t.bound.task.EndedError() // which rolls back; the connection may be another's
		}
		if !t.bound.take(t.owner) {
			return sql.ErrTxDone // with the one around it
		}
		busy := t.owner.seat.raw
		switch {
		case t.bound.ended.Load():
		case !t.open() && !t.replaced:
			t.bound.pass(t.owner)
			return sql.ErrTxDone
		case busy == nil:
			return nil
		}
		t.bound.pass(t.owner)
		if busy == nil {
			continue
		}
		if err := t.bound.awaitRaw(context.Background(), busy); err != nil {
			// It cannot be ended now, and will not be asked to be again.
			if t.bound.take(t.owner) {
				t.owner.broken = true
				if t.open() {
					tell := t.toldOfLoss()
					t.forget()
					tell()
				}
				t.bound.pass(t.owner)
			}
			return err
		}
	}
}

// open, deeper, rollback and forget are called under the lock.

func (t *tx) open() bool {
	return t.owner.seat.tx == t || slices.Contains(t.owner.seat.inner, t)
}

// deeper are the savepoints that are open inside.
func (t *tx) deeper() []*tx {
	inner := t.owner.seat.inner
	return inner[slices.Index(inner, t)+1:]
}

func (t *tx) rollback() (err error) {
	r := t.owner
	if rows := r.live.Load(); rows != nil {
		// Rows that were read inside: what is left of them is of no use if it
		// does not fit into memory.
		if e := t.bound.clear(context.Background(), r); e != nil {
			rows.abandon(e)
		}
	}
	switch {
	case t.savepoint == "":
		err = t.rollbackReal()
	case r.lost():
	default:
		r.schemaGeneration++
		if err = t.execute(r.traits.SavepointTexts().RollBack + " " + t.savepoint); err == nil {
			err = t.release()
		}
		// What was done inside must not be committed with the rest.
		r.seat.gone = r.seat.gone || err != nil
	}
	t.forget()
	if err != nil && t.savepoint == "" {
		t.insist()
	}
	return err
}

// release ends a savepoint, where the database knows how.
func (t *tx) release() error {
	text := t.owner.traits.SavepointTexts().Release
	if text == "" {
		return nil
	}
	return t.execute(text + " " + t.savepoint)
}

// commitReal commits the driver's transaction. A driver may say that the connection
// was closed already, and that it is safe to try again, when the answer to a COMMIT
// was lost (pgx 5.12: pgconn's multi-result reader keeps the first error to itself).
// Not of one that was sent; and where nobody counts what is, of none. There ErrBadConn is
// believed where that of a statement is.
func (t *tx) commitReal() error {
	before, counted := t.owner.session.Sent()
	err := t.run(t.real.Commit)
	if err == nil {
		return nil
	}
	believed := !counted && !t.owner.traits.BadConnUnsure
	if counted {
		if after, _ := t.owner.session.Sent(); after == before {
			return ofContext(t.ctx, err)
		}
	}
	if saysSafe(err) || errors.Is(err, driver.ErrBadConn) && !believed {
		err = unclear(errCommitUnclear, err)
	}
	return ofContext(t.ctx, err)
}

// insist rolls back by a statement what the driver has failed to end, and what
// the task's next statement would be in.
func (t *tx) insist() {
	if t.owner.inTx() && t.command(t.owner.session.Rollback) != nil {
		t.owner.broken = true
	}
}

// forget strikes the transaction off, with those inside.
func (t *tx) forget() {
	s := &t.owner.seat
	if t.savepoint != "" {
		if i := slices.Index(s.inner, t); i >= 0 {
			s.inner = s.inner[:i]
			for depth := range i + 1 {
				if around := s.at(depth); around != nil {
					around.reach = min(around.reach, i)
				}
			}
		}
	} else if s.tx == t {
		s.tx, s.inner, s.gone = nil, nil, false
	}
}

func (t *tx) execute(text string) error {
	return t.command(func(ctx context.Context) error { return t.owner.conn.Command(ctx, text) })
}

// command runs a command of ours, which BeginTx's context does not end.
func (t *tx) command(how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.conn.connector.config.CleanTimeout)
	defer cancel()
	return t.run(func() error { return how(ctx) })
}

// rollbackReal rolls the driver's transaction back.
func (t *tx) rollbackReal() error {
	if t.unbegun() {
		return nil
	}
	limit := t.conn.connector.config.CleanTimeout
	if t.kept != nil {
		defer t.kept.release(limit)()
	}
	defer t.owner.spare(t.owner.severAfter(limit))
	err := t.run(t.real.Rollback)
	if t.ctx.Err() != nil && !t.owner.traits.StatusKnown && (t.owner.conn.Resetter == nil || t.owner.conn.Validator == nil) {
		// database/sql's own rule for a connection that cannot say whether
		// it has survived a cancelled transaction.
		t.owner.broken = t.owner.broken || !t.owner.irreplaceable
		t.owner.doubt = true
	}
	return err
}

// run calls the driver for the end of a transaction.
func (t *tx) run(how func() error) error {
	t.owner.running++
	err := how()
	t.owner.running--
	t.owner.txEnds(t.savepoint == "")
	if err != nil {
		t.owner.doubt = true
		// MySQL may refuse to write at COMMIT only.
		t.conn.connector.handleDiagnosis(t.owner, t.conn.connector.dialect.Diagnose(err))
	}
	return err
}

// beginInside begins a savepoint, under r's lock.
func (c *conn) beginInside(ctx context.Context, t *operation, opts driver.TxOptions) (driver.Tx, error) {
	r := t.real
	outer := driver.TxOptions{}
	if r.seat.tx != nil {
		outer = r.seat.tx.opts
	}
	if opts != (driver.TxOptions{}) && opts != outer {
		return nil, errTxOptions
	}
	begun := &tx{conn: c, owner: r, bound: c.bound, ctx: ctx, opts: outer, savepoint: "pooldriver_" + strconv.Itoa(len(r.seat.inner)+1)}
	t.call()
	err := r.conn.Command(ctx, r.traits.SavepointTexts().Begin+" "+begun.savepoint)
	if _, err = c.finish(ctx, t, err, true); err != nil {
		return nil, err
	}
	r.seat.inner = append(r.seat.inner, begun)
	c.bound.lowerBarrier()
	t.scope.Begun(begun)
	return c.begun(begun), nil
}

// txContext is the context of a transaction for a driver that uses BeginTx's
// again for Rollback, and would close the connection because that context has
// ended: which is exactly when database/sql rolls back. It is BeginTx's context
// until the rollback, then one of its own with a bound.
type txContext struct {
	context.Context // BeginTx's, for its values
	current         atomic.Pointer[context.Context]
}

func newTxContext(ctx context.Context) *txContext {
	t := &txContext{Context: ctx}
	t.current.Store(&ctx)
	return t
}

// release exchanges the context for one that ends after timeout, or when the
// function it returns is called.
func (t *txContext) release(timeout time.Duration) context.CancelFunc {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context), timeout)
	t.current.Store(&ctx)
	return cancel
}

func (t *txContext) Deadline() (time.Time, bool) { return (*t.current.Load()).Deadline() }
func (t *txContext) Done() <-chan struct{}       { return (*t.current.Load()).Done() }
func (t *txContext) Err() error                  { return (*t.current.Load()).Err() }

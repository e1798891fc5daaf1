package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// realConn is one real connection, as the pool keeps it: the dialect's session
// with what was learned of the driver and what has happened on it. Whoever
// holds the lease owns it; where others may look, in turns.
type realConn struct {
	session dialects.Session
	conn    driver.Conn
	traits  dialects.Traits
	epoch   uint64 // of the connector when it was dialled: see Connector.flushOnce
	counts  bool   // the session counts what is sent

	// The driver's optional interfaces, nil where it has none. They are asked
	// for once: a type assertion to an interface costs more than a call.
	execerCtx  driver.ExecerContext
	execer     driver.Execer //nolint:staticcheck // drivers without ExecerContext have it
	queryerCtx driver.QueryerContext
	queryer    driver.Queryer //nolint:staticcheck // as above
	checker    driver.NamedValueChecker
	resetter   driver.SessionResetter // nil, too, where it need not be called
	validator  driver.Validator

	stmts stmtCache

	// What nearly every statement writes stands together, to share few lines of the
	// cache.

	lease pool.Lease[*realConn] // of whoever has it now

	// effect is what has run since the session was last clean.
	effect dialects.Effect
	// renamed, where prepared statements age: texts may mean something else since the
	// transaction began, or, outside of one, since the last one.
	renamed bool
	// doubt: a transaction's end failed or its beginning was cut short.
	doubt bool
	// roleDoubt: its server has refused what only a primary does.
	roleDoubt bool
	// broken: never to be lent again.
	broken bool
	// cut: the same, said by somebody who could not have the turn.
	cut atomic.Bool
	// running counts calls into the driver that have not returned. At the
	// end of a checkout it is 0, unless one panicked.
	running int

	// turn is for connections that several may use: those of a task, and
	// those whose rows may be taken back. live are the rows that others have
	// to reckon with; they are touched under turn only.
	turn turn
	live atomic.Pointer[rows]
	// holder is the binding that the connection is lent to, nil where it is
	// not lent to a task. It changes under turn.
	holder atomic.Pointer[binding]
	seat   seat // what the binding keeps of it

	// era changes whenever tables may have changed that a task's transaction on it
	// has used: when it begins, by a statement that is not known to change data only,
	// and by the rollback of a savepoint, which lets go of locks.
	era uint64
	// promised is the transaction that begins with the next statement.
	promised *tx

	// ended is closed when the server has let go of it, or was given up.
	ended chan struct{}
}

func newRealConn(s dialects.Session, t dialects.Traits, stmts int, epoch uint64) *realConn {
	if p, ok := s.(dialects.Particular); ok {
		t = p.Traits()
	}
	r := &realConn{session: s, conn: s.Conn(), traits: t, epoch: epoch, ended: make(chan struct{})}
	r.stmts.max = stmts
	_, r.counts = s.Sent()
	r.execerCtx, _ = r.conn.(driver.ExecerContext)
	r.execer, _ = r.conn.(driver.Execer) //nolint:staticcheck // see the field
	r.queryerCtx, _ = r.conn.(driver.QueryerContext)
	r.queryer, _ = r.conn.(driver.Queryer) //nolint:staticcheck // see the field
	r.checker, _ = r.conn.(driver.NamedValueChecker)
	if !t.ResetOnlyLooks {
		r.resetter, _ = r.conn.(driver.SessionResetter)
	}
	r.validator, _ = r.conn.(driver.Validator)
	return r
}

// severAfter is for calls of the driver that know no context: one that takes longer
// than limit has its connection cut, where the dialect can do that. spare ends it:
//
//	defer r.spare(r.severAfter(limit))
func (r *realConn) severAfter(limit time.Duration) *time.Timer {
	if s, ok := r.session.(dialects.Severable); ok {
		return time.AfterFunc(limit, s.Sever)
	}
	return nil
}

func (r *realConn) spare(cut *time.Timer) {
	if cut != nil && !cut.Stop() {
		r.broken = true // also where the call has just succeeded
	}
}

// canExec and canQuery: whether the driver runs statements without preparing
// them; where not, database/sql is told ErrSkip and prepares.
func (r *realConn) canExec() bool  { return r.execerCtx != nil || r.execer != nil }
func (r *realConn) canQuery() bool { return r.queryerCtx != nil || r.queryer != nil }

// The methods below call the driver the way database/sql's ctxutil.go does:
// the context method where there is one, else the older one with the context
// looked at before or after.

func (r *realConn) exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if r.execerCtx != nil {
		return r.execerCtx.ExecContext(ctx, query, args)
	}
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.execer.Exec(query, plain)
}

func (r *realConn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if r.queryerCtx != nil {
		return r.queryerCtx.QueryContext(ctx, query, args)
	}
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.queryer.Query(query, plain)
}

func (r *realConn) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := r.conn.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	si, err := r.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = si.Close()
		return nil, err
	}
	return si, nil
}

func (r *realConn) begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := r.conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	if sql.IsolationLevel(opts.Isolation) != sql.LevelDefault {
		return nil, errors.New("sql: driver does not support non-default isolation level")
	}
	if opts.ReadOnly {
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	txi, err := r.conn.Begin() //nolint:staticcheck // the driver has nothing newer
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		if txi.Rollback() != nil {
			r.doubt = true
		}
		return nil, err
	}
	return txi, nil
}

func (r *realConn) ping(ctx context.Context) error {
	if p, ok := r.conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func execStmt(ctx context.Context, si driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if s, ok := si.(driver.StmtExecContext); ok {
		return s.ExecContext(ctx, args)
	}
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return si.Exec(plain) //nolint:staticcheck // the driver has nothing newer
}

func queryStmt(ctx context.Context, si driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if s, ok := si.(driver.StmtQueryContext); ok {
		return s.QueryContext(ctx, args)
	}
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return si.Query(plain) //nolint:staticcheck // the driver has nothing newer
}

// txStatus asks the session where its answer is at hand, or where something
// has happened that makes it worth asking (SQLite: a microsecond).
func (r *realConn) txStatus() dialects.TxStatus {
	if r.traits.StatusKnown || r.doubt || r.effect&dialects.TxControl != 0 {
		return r.session.TxStatus()
	}
	return dialects.TxUnknown
}

// notes is note for t's statement.
func (r *realConn) notes(t *try, query string) {
	r.note(t.effect)
	if r.seat.tx != nil && r.traits.PreparedAges && !(leavesNothing(t.effect) && manipulates(query)) {
		r.era++
	}
}

// eraNow is the era in a task's transaction, else 0.
func (r *realConn) eraNow() uint64 {
	if r.seat.tx == nil {
		return 0
	}
	return r.era
}

// note records what a statement is about to do to the session. It is called
// before it is sent: if it fails half way, what it began still counts.
func (r *realConn) note(e dialects.Effect) {
	r.effect |= e
	if e&dialects.ForgetPrepared != 0 && r.traits.PreparedAges {
		r.renamed = true
	}
	if e&dialects.TxControl != 0 && e&dialects.Suspect == 0 {
		r.seat.hidden = true
	}
}

// settled is called after a statement has run. One that changes what earlier
// texts mean makes the statement cache forget them. One that may have to do
// with a transaction and failed leaves it in doubt: not every protocol tells the
// transaction's state with an error. driver.ErrSkip is neither: nothing ran.
func (r *realConn) settled(e dialects.Effect, err error) {
	if err != nil || !leavesNothing(e) {
		r.reckon(e, err)
	}
}

// reckon is settled where there is something to do, so that settled is inlined.
func (r *realConn) reckon(e dialects.Effect, err error) {
	if err == driver.ErrSkip {
		return
	}
	if e&dialects.ForgetPrepared != 0 || r.traits.PreparedKeepsTypes && e&dialects.Stateful != 0 {
		r.stmts.expireAll()
	}
	if e&dialects.TxControl != 0 && r.renamed {
		r.txEnds(err == nil && r.txStatus() == dialects.TxNone) // who failed is not asked
	}
	if err != nil {
		r.doubt = r.doubt || e&dialects.TxControl != 0
		return
	}
	// The program counts on it from here on, even if the connection is dead
	// before we look at it.
	if e&changesSession != 0 {
		r.seat.stateful = true
	}
	if e&dialects.TxControl != 0 && r.seat.tx == nil {
		status := r.txStatus()
		if last, ok := r.session.(dialects.LastWord); ok && status == dialects.TxLost {
			status = last.LastTxStatus()
		}
		r.seat.byHand = status == dialects.TxOpen || status == dialects.TxFailed || status == dialects.TxLost
	}
}

// txEnds is for the end of a transaction, or of a savepoint that is not the whole: it may
// take back what has changed the meaning of texts. What was prepared since has the types
// of then where a server keeps them.
func (r *realConn) txEnds(whole bool) {
	if r.renamed {
		r.stmts.expireAll()
		r.renamed = !whole
	}
}

// command executes a statement of ours.
func (r *realConn) command(ctx context.Context, text string) error {
	if r.canExec() {
		if _, err := r.exec(ctx, text, nil); err != driver.ErrSkip {
			return err
		}
	}
	si, err := r.prepare(ctx, text)
	if err != nil {
		return err
	}
	_, err = execStmt(ctx, si, nil)
	if e := si.Close(); err == nil {
		err = e
	}
	return err
}

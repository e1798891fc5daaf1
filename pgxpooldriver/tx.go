package pgxpooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a transaction. In a task, a transaction that begins while another one of the task is open is a savepoint
// in that, whoever has begun it.
type Tx struct {
	link    *link
	owns    bool // the link ends with the transaction
	around  *Tx  // in which Begin was called; nil: none
	tx      driver.Tx
	life    lifetime
	closed  bool     // under link.mu
	lent    bool     // pgx's own connection was lent before it began
	lends   bool     // Conn or LargeObjects was called on it
	objects *objects // of LargeObjects; nil: none
}

var _ pgx.Tx = (*Tx)(nil)

var errQueries = errors.New("pgxpooldriver: TxOptions with a BeginQuery or a CommitQuery would begin or end a transaction that nobody else knows of: set IsoLevel, AccessMode and DeferrableMode, or execute further statements of the transaction")

var levels = map[pgx.TxIsoLevel]sql.IsolationLevel{
	"": sql.LevelDefault, pgx.ReadUncommitted: sql.LevelReadUncommitted, pgx.ReadCommitted: sql.LevelReadCommitted,
	pgx.RepeatableRead: sql.LevelRepeatableRead, pgx.Serializable: sql.LevelSerializable,
}

// begin begins a transaction of h; nil: of the Pool. If h is a transaction, it is a savepoint.
func (l *link) begin(ctx context.Context, h handle, opts pgx.TxOptions, owns bool) (pgx.Tx, error) {
	level, err := levelOf(opts)
	if err != nil {
		return nil, err
	}
	around, _ := h.(*Tx)
	t := &Tx{link: l, owns: owns, around: around}
	err = t.start(ctx, h, driver.TxOptions{Isolation: driver.IsolationLevel(level), ReadOnly: opts.AccessMode == pgx.ReadOnly})
	if t.tx != nil && !owns && around == nil {
		if left := l.open(h, t); err == nil {
			err = left
		}
	}
	if text := furtherModes(opts); err == nil && text != "" {
		_, err = l.doExec(ctx, t, text, nil)
	}
	if err == nil {
		return t, nil
	}
	if t.tx != nil {
		t.owns = false
		_ = t.Rollback(ctx)
	}
	return nil, err
}

// levelOf returns the isolation level, or an error if opts have what a transaction here cannot have.
func levelOf(opts pgx.TxOptions) (sql.IsolationLevel, error) {
	if opts.BeginQuery != "" || opts.CommitQuery != "" {
		return 0, errQueries
	}
	level, ok := levels[opts.IsoLevel]
	if !ok {
		return 0, fmt.Errorf("pgxpooldriver: unknown isolation level %q", opts.IsoLevel)
	}
	switch opts.AccessMode {
	case "", pgx.ReadWrite, pgx.ReadOnly:
	default:
		return 0, fmt.Errorf("pgxpooldriver: unknown access mode %q", opts.AccessMode)
	}
	switch opts.DeferrableMode {
	case "", pgx.Deferrable, pgx.NotDeferrable:
	default:
		return 0, fmt.Errorf("pgxpooldriver: unknown deferrable mode %q", opts.DeferrableMode)
	}
	return level, nil
}

func (t *Tx) start(ctx context.Context, h handle, opts driver.TxOptions) error {
	l := t.link
	if err := l.lockFor(h); err != nil {
		return err
	}
	defer l.mu.Unlock() // also if code of the program panics, such as a tracer of pgx
	t.life.start(ctx)
	t.lent = l.lent != nil
	if err := l.leftOpen(); err != nil {
		return err
	}
	return l.beside(context.Background(), func() (err error) {
		t.tx, err = l.conn.Start(ctx, &t.life, opts, t.around != nil)
		return err
	})
}

// furtherModes sets what database/sql has no option for.
func furtherModes(opts pgx.TxOptions) string {
	text := ""
	if opts.AccessMode == pgx.ReadWrite {
		text = " read write"
	}
	if opts.DeferrableMode != "" {
		text += " " + string(opts.DeferrableMode)
	}
	if text == "" {
		return ""
	}
	return "set transaction" + text
}

// ended implements handle. A transaction has also ended if one around it has.
func (t *Tx) ended() error {
	for ; t != nil; t = t.around {
		if t.closed {
			return pgx.ErrTxClosed
		}
	}
	return nil
}

// Begin begins a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	return t.link.begin(ctx, t, pgx.TxOptions{}, false)
}

// Commit commits. If ctx has ended before, the transaction is rolled back.
func (t *Tx) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		if closed := t.Rollback(ctx); closed == pgx.ErrTxClosed {
			return closed
		}
		return err
	}
	return t.end(ctx, ctx, driver.Tx.Commit)
}

// Rollback rolls back, also if ctx has ended: then it takes no longer than Config.CleanTimeout.
func (t *Tx) Rollback(ctx context.Context) error {
	bound := ctx
	if ctx.Err() == nil {
		bound = context.WithoutCancel(ctx)
	}
	return t.end(ctx, bound, driver.Tx.Rollback)
}

// end ends the transaction. bound is the context of the statement that does so.
func (t *Tx) end(ctx, bound context.Context, how func(driver.Tx) error) (err error) {
	l := t.link
	if err := l.lockFor(t); err != nil {
		return err
	}
	copying := l.copying
	t.closed = !copying // from now on no call by t gets the lock
	l.mu.Unlock()
	if copying {
		return errCopying
	}
	if t.around == nil {
		l.leaveInside(t)
	}
	t.life.finish(bound)
	defer func() { l.end(t, t.owns) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.around == nil && !t.lent || t.lends {
		l.endLoan(nil)
	}
	lentFor := l.lentFor
	if t.around != nil {
		lentFor = context.Background()
	}
	err = l.beside(lentFor, func() error { return how(t.tx) })
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", pgx.ErrTxClosed, err)
	}
	return err
}

// leave implements inner.
func (t *Tx) leave() { _ = t.Rollback(context.Background()) }

// Exec executes a statement in the transaction.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.link.doExec(ctx, t, sql, args)
}

// Query runs a query in the transaction.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.link.doQuery(ctx, t, sql, args)
}

// QueryRow runs a query of one row in the transaction.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.link.doQueryRow(ctx, t, sql, args)
}

// CopyFrom copies rows into a table.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return t.link.copyFrom(ctx, t, table, columns, src)
}

// SendBatch sends a batch in the transaction.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.link.sendBatch(ctx, t, b)
}

// Prepare prepares a statement with a name, which ends with the transaction.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.link.prepare(ctx, t, name, sql)
}

// Conn lends pgx's own connection until the transaction ends. Nobody knows what is done with it, so the session is
// cleaned or replaced afterwards. Meanwhile the methods of the transaction use it, too, and other statements of the
// task fail. Conn is nil if the transaction has ended or its connection is lost.
func (t *Tx) Conn() *pgx.Conn {
	if c, err := t.link.raw(t); c != nil || err != nil { // a transaction around t has it
		return c
	}
	c, err := t.link.lend(context.Background(), t)
	if err != nil {
		return nil
	}
	t.lends = true
	return c
}

// LargeObjects works over the connection of Conn. If Conn is nil, so are its transactions, and its methods panic.
func (t *Tx) LargeObjects() pgx.LargeObjects {
	c := t.Conn()
	if c == nil {
		return pgx.LargeObjects{}
	}
	// Only a transaction of pgx has them. This one begins and ends with nothing: ours is open.
	if t.objects == nil {
		tx, err := c.BeginTx(context.Background(), pgx.TxOptions{BeginQuery: ";", CommitQuery: ";"})
		if err != nil {
			return pgx.LargeObjects{}
		}
		o := &objects{tx}
		if t.link.open(t, o) != nil {
			return pgx.LargeObjects{}
		}
		t.objects = o
	}
	return t.objects.LargeObjects()
}

// objects is the transaction of pgx for LargeObjects.
type objects struct{ pgx.Tx }

const objectsPatience = 5 * time.Second

// leave implements inner: the large objects are errors afterwards.
func (o *objects) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), objectsPatience)
	defer cancel()
	_ = o.Commit(ctx)
}

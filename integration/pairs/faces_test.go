package pairs

import (
	"context"
	"database/sql"
	"errors"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What acts need of a face: of database/sql and of pgx, ours and the bare driver's.
type (
	rows interface {
		Next() bool
		Scan(...any) error
		Err() error
		Close() error
	}
	runner interface {
		exec(ctx context.Context, text string, args ...any) (int64, error)
		query(ctx context.Context, text string, args ...any) (rows, error)
	}
	transaction interface {
		runner
		end(ctx context.Context, commits bool) error
	}
	beginner interface {
		runner
		begin(ctx context.Context, o sql.TxOptions) (transaction, error)
	}
	lent interface {
		beginner
		close() error
	}
	handle interface {
		beginner
		conn(ctx context.Context) (lent, error)
	}
)

// database/sql

type sqlQuerier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

type sqlRunner struct {
	q        sqlQuerier
	question bool // placeholders are question marks
}

var numbered = regexp.MustCompile(`\$\d`)

func (r sqlRunner) text(text string) string {
	if r.question {
		return numbered.ReplaceAllString(text, "?")
	}
	return text
}

func (r sqlRunner) exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := r.q.ExecContext(ctx, r.text(text), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (r sqlRunner) query(ctx context.Context, text string, args ...any) (rows, error) {
	found, err := r.q.QueryContext(ctx, r.text(text), args...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

type sqlTx struct {
	sqlRunner
	tx *sql.Tx
}

func (t sqlTx) end(_ context.Context, commits bool) error {
	if commits {
		return t.tx.Commit()
	}
	return t.tx.Rollback()
}

type sqlConn struct {
	sqlRunner
	c *sql.Conn
}

func (c sqlConn) begin(ctx context.Context, o sql.TxOptions) (transaction, error) {
	tx, err := c.c.BeginTx(ctx, &o)
	return sqlTx{sqlRunner{tx, c.question}, tx}, err
}

func (c sqlConn) close() error { return c.c.Close() }

type sqlHandle struct {
	sqlRunner
	db *sql.DB
}

func onSQL(db *sql.DB, question bool) sqlHandle { return sqlHandle{sqlRunner{db, question}, db} }

func (h sqlHandle) begin(ctx context.Context, o sql.TxOptions) (transaction, error) {
	tx, err := h.db.BeginTx(ctx, &o)
	return sqlTx{sqlRunner{tx, h.question}, tx}, err
}

func (h sqlHandle) conn(ctx context.Context) (lent, error) {
	c, err := h.db.Conn(ctx)
	return sqlConn{sqlRunner{c, h.question}, c}, err
}

// pgx

// pgxQuerier is what pools, connections and transactions of pgx have. A transaction has no BeginTx.
type pgxQuerier interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
}

type pgxBeginner interface {
	pgxQuerier
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

type pgxRunner struct{ q pgxQuerier }

type pgxRows struct{ pgx.Rows }

func (r pgxRows) Close() error { r.Rows.Close(); return r.Err() }

func (r pgxRunner) exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := r.q.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

func (r pgxRunner) query(ctx context.Context, text string, args ...any) (rows, error) {
	found, err := r.q.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgxRows{found}, nil
}

type pgxTx struct {
	pgxRunner
	tx pgx.Tx
}

func (t pgxTx) end(ctx context.Context, commits bool) error {
	if commits {
		return t.tx.Commit(ctx)
	}
	return t.tx.Rollback(ctx)
}

func pgxBegin(ctx context.Context, q pgxBeginner, o sql.TxOptions) (transaction, error) {
	var options pgx.TxOptions
	if o.ReadOnly {
		options.AccessMode = pgx.ReadOnly
	}
	switch o.Isolation {
	case sql.LevelRepeatableRead:
		options.IsoLevel = pgx.RepeatableRead
	case sql.LevelSerializable:
		options.IsoLevel = pgx.Serializable
	}
	tx, err := q.BeginTx(ctx, options)
	return pgxTx{pgxRunner{tx}, tx}, err
}

type pgxConn struct {
	pgxRunner
	c       pgxBeginner
	own     func() *pgx.Conn
	release func()
}

func (c *pgxConn) begin(ctx context.Context, o sql.TxOptions) (transaction, error) {
	return pgxBegin(ctx, c.c, o)
}
func (c *pgxConn) close() error { c.release(); return nil }

type pgxHandle struct {
	pgxRunner
	p       pgxBeginner
	acquire func(context.Context) (lent, error)
}

func (h pgxHandle) begin(ctx context.Context, o sql.TxOptions) (transaction, error) {
	return pgxBegin(ctx, h.p, o)
}
func (h pgxHandle) conn(ctx context.Context) (lent, error) { return h.acquire(ctx) }

// onPool serves pools of pgxpooldriver and of pgxpool.
func onPool[C interface {
	pgxBeginner
	Conn() *pgx.Conn
	Release()
}, P interface {
	pgxBeginner
	Acquire(context.Context) (C, error)
}](p P) pgxHandle {
	return pgxHandle{pgxRunner{p}, p, func(ctx context.Context) (lent, error) {
		c, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return &pgxConn{pgxRunner{c}, c, c.Conn, c.Release}, nil
	}}
}

// one runs a query that returns one row.
func one(ctx context.Context, on runner, text string, args []any, to ...any) error {
	found, err := on.query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	if !found.Next() {
		return errors.Join(found.Err(), sql.ErrNoRows)
	}
	if err := found.Scan(to...); err != nil {
		return err
	}
	return found.Close()
}

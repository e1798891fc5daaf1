package pgxpooldriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver"
)

// Pool has the methods of a *pgxpool.Pool, over the connections of a Connector. It is safe for concurrent use.
type Pool struct {
	connector *pooldriver.Connector
	fault     error     // of every call; nil: calls run
	idle      sync.Pool // of *link
}

// New returns a Pool over c. It opens nothing. If c is not for PostgreSQL, or New or Wrap has found a mistake in c,
// every call returns an error.
func New(c *pooldriver.Connector) *Pool {
	p := &Pool{connector: c}
	if c == nil {
		p.fault = errors.New("pgxpooldriver: New was given no Connector")
	} else if p.fault = c.Err(); p.fault == nil {
		if _, ok := c.Driver().(*stdlib.Driver); !ok {
			p.fault = fmt.Errorf("pgxpooldriver: the driver of this Connector is %T, and pgx's API needs pgx (stdlib): give New a Connector for PostgreSQL, or use the *sql.DB", c.Driver())
		}
	}
	return p
}

// Connector is the Connector that New was given.
func (p *Pool) Connector() *pooldriver.Connector { return p.connector }

// Exec executes a statement.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	l, err := p.take(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer l.release()
	return l.doExec(ctx, sql, args)
}

// Query runs a query. Its connection goes back when the rows are closed.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	l, err := p.take(ctx)
	if err != nil {
		return failedRows(err), err
	}
	open := false
	defer func() {
		if !open { // also by a panic
			l.release()
		}
	}()
	rows, err := l.doQuery(ctx, sql, args, true)
	open = err == nil
	return rows, err
}

// QueryRow runs a query of one row. Its connection goes back when the row is scanned.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := p.Query(ctx, sql, args...)
	return asRow(rows)
}

// asRow makes a Row of rows: ours, or those of a lent connection.
func asRow(r pgx.Rows) pgx.Row {
	if own, ok := r.(*rows); ok {
		return (*row)(own)
	}
	return lentRow{r}
}

// lentRow is a row of a connection that is lent.
type lentRow struct{ rows pgx.Rows }

// Scan does what pgx does.
func (r lentRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	_ = r.rows.Scan(dest...)
	r.rows.Close()
	return r.rows.Err()
}

// SendBatch sends a batch. Its connection goes back when the results are closed.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	l, err := p.take(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return l.sendBatch(ctx, b, true)
}

// CopyFrom copies rows into a table.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	l, err := p.take(ctx)
	if err != nil {
		return 0, err
	}
	defer l.release()
	return l.copyFrom(ctx, table, columns, src)
}

// Begin begins a transaction.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction. Its connection goes back when it ends.
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	l, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := l.begin(ctx, opts, true, nil)
	if err != nil {
		l.release()
		return nil, err
	}
	return tx, nil
}

// Acquire takes a connection until its Release. In a task it is the task's session.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	l, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.attach(ctx); err != nil {
		l.release()
		return nil, err
	}
	return &Conn{l, context.WithoutCancel(ctx)}, nil
}

// AcquireFunc calls fn with a connection, which it releases afterwards.
func (p *Pool) AcquireFunc(ctx context.Context, fn func(*Conn) error) error {
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return fn(c)
}

// Ping asks the server for a sign of life.
func (p *Pool) Ping(ctx context.Context) error {
	l, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer l.release()
	return l.ping(ctx)
}

// Close closes the Connector, and with it the pool of every *sql.DB over it. Unlike pgxpool it does not wait for
// connections that are in use: see Connector.Drain.
func (p *Pool) Close() {
	if p.connector != nil {
		_ = p.connector.Close()
	}
}

// Reset closes every connection, as soon as it is not in use.
func (p *Pool) Reset() {
	if p.fault == nil {
		p.connector.Flush()
	}
}

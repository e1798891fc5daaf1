package pgxpooldriver

import (
	"context"
	"database/sql/driver"
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
	fault     error     // the error of every call; nil: the pool works
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

// call runs fn on a link, which ends with the call; if keeps is true, it goes on with what fn returns without an error.
// fn has further tries where database/sql would give it some: the Connector returns ErrBadConn if nothing was executed, as
// when several idle connections were killed.
func call[T any](ctx context.Context, p *Pool, keeps bool, fn func(*link) (T, error)) (v T, err error) {
	for range mostTries {
		if v, err = callOnce(ctx, p, keeps, fn); !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return v, err
}

const mostTries = 3

func callOnce[T any](ctx context.Context, p *Pool, keeps bool, fn func(*link) (T, error)) (v T, err error) {
	l, err := p.take(ctx)
	if err != nil {
		return v, err
	}
	kept := false
	defer func() {
		if !kept { // also by a panic
			l.release()
		}
	}()
	v, err = fn(l)
	kept = keeps && err == nil
	return v, err
}

// Exec executes a statement.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return call(ctx, p, false, func(l *link) (pgconn.CommandTag, error) { return l.doExec(ctx, nil, sql, args) })
}

// Query runs a query. Its connection goes back when the rows are closed.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.query(ctx, sql, args)
}

func (p *Pool) query(ctx context.Context, sql string, args []any) (*rows, error) {
	r, err := call(ctx, p, true, func(l *link) (*rows, error) { return l.query(ctx, nil, sql, args, true) })
	if err != nil {
		return failedRows(err), err
	}
	return r, nil
}

// QueryRow runs a query of one row. Its connection goes back when the row is scanned.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, _ := p.query(ctx, sql, args)
	return (*row)(r)
}

// SendBatch sends a batch. Its connection goes back when the results are closed.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	r, err := call(ctx, p, true, func(l *link) (*batch, error) { return l.newBatch(ctx, nil, b, true) })
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return r
}

// CopyFrom copies rows into a table.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return callOnce(ctx, p, false, func(l *link) (int64, error) { return l.copyFrom(ctx, nil, table, columns, src) })
}

// Begin begins a transaction.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction. Its connection goes back when it ends.
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return call(ctx, p, true, func(l *link) (pgx.Tx, error) { return l.begin(ctx, nil, opts, true) })
}

// Acquire takes a connection until its Release. In a task it is the task's session.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	return call(ctx, p, true, func(l *link) (*Conn, error) {
		if err := l.attach(ctx); err != nil {
			return nil, err
		}
		return &Conn{link: l, ctx: context.WithoutCancel(ctx)}, nil
	})
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
	_, err := call(ctx, p, false, func(l *link) (struct{}, error) { return struct{}{}, l.ping(ctx, nil) })
	return err
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

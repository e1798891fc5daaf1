package pgxpooldriver

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver"
)

// Pool has the methods of a *pgxpool.Pool, over the connections of a Connector.
type Pool struct{ connector *pooldriver.Connector }

// New returns a Pool over c.
func New(c *pooldriver.Connector) *Pool { return &Pool{connector: c} }

var errNotYet = errors.New("pgxpooldriver: not implemented yet")

func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errNotYet
}
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return nil, errNotYet
}
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row { return nil }
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return pgx.FailedBatchResults(b, errNotYet)
}
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return 0, errNotYet
}
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return nil, errNotYet }
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return nil, errNotYet
}
func (p *Pool) Acquire(ctx context.Context) (*Conn, error)                  { return nil, errNotYet }
func (p *Pool) AcquireFunc(ctx context.Context, fn func(*Conn) error) error { return errNotYet }
func (p *Pool) Ping(ctx context.Context) error                              { return errNotYet }
func (p *Pool) Stat() *Stat                                                 { return &Stat{} }
func (p *Pool) Close()                                                      {}

// Connector is the Connector that New was given.
func (p *Pool) Connector() *pooldriver.Connector { return p.connector }

package pgxpooldriver

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Conn is a connection of Pool.Acquire, as a *pgxpool.Conn is.
type Conn struct{}

func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errNotYet
}
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return nil, errNotYet
}
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row { return nil }
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return pgx.FailedBatchResults(b, errNotYet)
}
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return 0, errNotYet
}
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return nil, errNotYet }
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return nil, errNotYet
}
func (c *Conn) Ping(ctx context.Context) error { return errNotYet }

// Conn lends pgx's own connection, until Release. It is nil if the connection is lost.
func (c *Conn) Conn() *pgx.Conn { return nil }
func (c *Conn) Release()        {}

// Hijack panics.
func (c *Conn) Hijack() *pgx.Conn { panic("pgxpooldriver: Hijack") }

package pgxpooldriver

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Conn is a connection of Pool.Acquire, as a *pgxpool.Conn is. In a task it is the task's session.
type Conn struct {
	link     *link
	ctx      context.Context // of Acquire, without its end: for whom pgx's own connection is lent
	released bool            // under link.mu; then others may have the link
}

// Release gives the connection back, and closes what is still open on it. Further calls do nothing.
func (c *Conn) Release() {
	l := c.link
	l.mu.Lock()
	released := c.released
	c.released = true
	l.mu.Unlock()
	if !released {
		l.leave()
	}
}

var errReleased = errors.New("pgxpooldriver: this Conn was released")

// ended implements handle.
func (c *Conn) ended() error {
	if c.released {
		return errReleased
	}
	return nil
}

// Exec executes a statement.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return c.link.doExec(ctx, c, sql, args)
}

// Query runs a query.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.link.doQuery(ctx, c, sql, args)
}

// QueryRow runs a query of one row.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.link.doQueryRow(ctx, c, sql, args)
}

// SendBatch sends a batch.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return c.link.sendBatch(ctx, c, b)
}

// CopyFrom copies rows into a table.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return c.link.copyFrom(ctx, c, table, columns, src)
}

// Begin begins a transaction.
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction.
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return c.link.begin(ctx, c, opts, false)
}

// Ping asks the server for a sign of life.
func (c *Conn) Ping(ctx context.Context) error { return c.link.ping(ctx, c) }

// Conn lends pgx's own connection until Release, with the settings of Acquire's context. Nobody knows what is done with it, so the session is cleaned
// afterwards. If rows or a transaction are open on it then, the session is closed. Meanwhile the methods of c use it, too, and other
// statements of the task fail. Conn is nil if the connection is lost.
func (c *Conn) Conn() *pgx.Conn {
	raw, err := c.link.lend(c.ctx, c)
	if err != nil {
		return nil
	}
	return raw
}

// Hijack panics: a connection cannot leave the limit of its Connector.
func (c *Conn) Hijack() *pgx.Conn {
	panic("pgxpooldriver: Hijack would take a connection out of the limit of the Connector: use Conn until Release, Connector.Listen for notifications, or pgx.Connect for a connection of your own")
}

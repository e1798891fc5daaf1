package pgxpooldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// Conn is a connection of Pool.Acquire, as a *pgxpool.Conn is. In a task it is the task's session.
type Conn struct {
	link *link
	ctx  context.Context // of Acquire, without its end: for whom pgx's own connection is lent
}

// Release gives the connection back, and closes what is still open on it. Further calls do nothing.
func (c *Conn) Release() {
	if l := c.link; l != released {
		c.link = released
		l.leave()
	}
}

var (
	// released is the link of every Conn after its Release. Its calls are errors.
	released    = &link{conn: gone{}}
	errReleased = errors.New("pgxpooldriver: this Conn was released")
)

// gone is the connection of released. Nothing else of it is called.
type gone struct{ direct.Conn }

func (gone) Ping(context.Context) error { return errReleased }
func (gone) Execute(context.Context, *direct.Call) (driver.Rows, error) {
	return nil, errReleased
}
func (gone) Start(_, _ context.Context, _ driver.TxOptions, _ bool) (driver.Tx, error) {
	return nil, errReleased
}
func (gone) Lend(context.Context, dialects.Effect) (direct.Loan, error) { return nil, errReleased }

// Exec executes a statement.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return c.link.doExec(ctx, sql, args)
}

// Query runs a query.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.link.doQuery(ctx, sql, args)
}

// QueryRow runs a query of one row.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.link.doQueryRow(ctx, sql, args)
}

// SendBatch sends a batch.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return c.link.sendBatch(ctx, b)
}

// CopyFrom copies rows into a table.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return c.link.copyFrom(ctx, table, columns, src)
}

// Begin begins a transaction.
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction.
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return c.link.begin(ctx, opts, false, nil)
}

// Ping asks the server for a sign of life.
func (c *Conn) Ping(ctx context.Context) error { return c.link.ping(ctx) }

// Conn lends pgx's own connection until Release, with the settings of Acquire's context. Nobody knows what is done with it, so the session is cleaned
// afterwards. If rows or a transaction are open on it then, the session is closed. Meanwhile the methods of c use it, too, and other
// statements of the task fail. Conn is nil if the connection is lost.
func (c *Conn) Conn() *pgx.Conn {
	raw, err := c.link.lend(c.ctx)
	if err != nil {
		return nil
	}
	return raw
}

// Hijack panics: a connection cannot leave the limit of its Connector.
func (c *Conn) Hijack() *pgx.Conn {
	panic("pgxpooldriver: Hijack would take a connection out of the limit of the Connector: use Conn until Release, Connector.Listen for notifications, or pgx.Connect for a connection of your own")
}

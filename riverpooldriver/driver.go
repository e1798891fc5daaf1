package riverpooldriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// Driver is a driver of River. It is safe for concurrent use.
type Driver struct {
	*riverpgxv5.Driver // without a pool
	pool               *pgxpooldriver.Pool
}

var _ riverdriver.Driver[pgx.Tx] = (*Driver)(nil)

// New returns a Driver over pool. It opens nothing. As with riverpgxv5, pool may be nil: then only the methods of
// the client that take a transaction work.
func New(pool *pgxpooldriver.Pool) *Driver { return &Driver{riverpgxv5.New(nil), pool} }

// own is River's own driver. River calls methods of a nil Driver, too (river.JobCompleteTx).
func (d *Driver) own() *riverpgxv5.Driver {
	if d == nil {
		return nil
	}
	return d.Driver
}

// PoolIsSet implements riverdriver.Driver.
func (d *Driver) PoolIsSet() bool { return d.pool != nil }

// GetExecutor implements riverdriver.Driver. The result is no ExecutorTx: on one, River's Insert begins no transaction.
func (d *Driver) GetExecutor() riverdriver.Executor {
	return struct{ riverdriver.Executor }{d.Driver.UnwrapExecutor(executor{statements: d.pool})}
}

// GetListener implements riverdriver.Driver.
func (d *Driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{pool: d.pool, schema: params.Schema}
}

// UnwrapExecutor implements riverdriver.Driver.
func (d *Driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return d.own().UnwrapExecutor(executor{tx, transaction{tx}})
}

// UnwrapTx implements riverdriver.Driver.
func (d *Driver) UnwrapTx(tx riverdriver.ExecutorTx) pgx.Tx {
	return d.own().UnwrapTx(tx).(executor).Tx
}

// statements are what a pool and a transaction can do.
type statements interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error)
}

// transaction is nil for a pool. It is a struct so that its methods are deeper in executor than those of statements.
type transaction struct{ pgx.Tx }

// executor is a pool or a transaction, in the only form that River's own driver takes.
type executor struct {
	statements
	transaction
}

var _ pgx.Tx = executor{}

// Begin begins a transaction. On a pool it begins with its first statement.
func (e executor) Begin(ctx context.Context) (pgx.Tx, error) {
	if e.transaction.Tx == nil {
		tx := &later{pool: e, within: ctx}
		return executor{tx, transaction{tx}}, nil
	}
	tx, err := e.statements.Begin(ctx)
	if err != nil {
		return nil, translated(err)
	}
	return executor{tx, transaction{tx}}, nil
}

// Exec executes a statement.
func (e executor) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := e.statements.Exec(prioritized(ctx, sql), sql, args...)
	return tag, translated(err)
}

// Query runs a query.
func (e executor) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := e.statements.Query(prioritized(ctx, sql), sql, args...)
	return rows, translated(err)
}

// QueryRow runs a query of one row.
func (e executor) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return e.statements.QueryRow(prioritized(ctx, sql), sql, args...)
}

// translated returns err, as one by which River knows that another try is of no use.
func translated(err error) error {
	if errors.Is(err, pooldriver.ErrClosed) {
		return fmt.Errorf("%w: %w", riverdriver.ErrClosedPool, err)
	}
	return err
}

// Conn is nil. River would ask it for the mode of execution, with each statement; see Config.
func (executor) Conn() *pgx.Conn { return nil }

// Config tells River's own driver the mode of execution. In the modes that send texts it gives JSON a type, which
// changes nothing in the others but costs 40 to 150 µs for a statement. The true mode is known to nobody before there is
// a connection.
func (executor) Config() *pgxpool.Config { return textual }

var textual = &pgxpool.Config{ConnConfig: &pgx.ConnConfig{DefaultQueryExecMode: pgx.QueryExecModeExec}}

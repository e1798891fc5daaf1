package riverpooldriver

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver"
)

// needed are the queries of River's own driver that a client needs to go on: refused for long, its jobs would neither be
// completed nor begin. The rest is refused under overload as other statements are: a fetch that is refused leaves the
// job in the queue, and an Insert is a request's.
var needed = []string{
	"JobSetStateIfRunningMany", "JobSchedule", "JobRescueMany", "JobGetStuck", "JobGetCancelRequested",
	"LeaderAttemptElect", "LeaderAttemptReelect", "LeaderDeleteExpired", "LeaderGetElectedLeader", "LeaderResign",
	"QueueCreateOrSetUpdatedAt", "QueueGet", "PGGetProductAndVersion",
}

// prioritized is the context of a statement. River's own driver has the name of each query in its first line.
func prioritized(ctx context.Context, sql string) context.Context {
	if name, ok := strings.CutPrefix(sql, "-- name: "); ok {
		if name, _, _ = strings.Cut(name, " "); slices.Contains(needed, name) {
			return pooldriver.WithPriority(ctx, pooldriver.PriorityHigh)
		}
	}
	return ctx
}

// later is a transaction that begins with its first statement. Only that tells an election from a request's Insert. One goroutine at
// a time uses it.
type later struct {
	pgx.Tx // nil: not begun
	pool   executor
	within context.Context // of Begin
	failed error
}

// begin begins the transaction for its first statement.
func (l *later) begin(sql string) error {
	if l.Tx == nil && l.failed == nil {
		tx, err := l.pool.statements.Begin(prioritized(l.within, sql))
		if err != nil {
			l.failed = translated(err)
			return l.failed
		}
		l.Tx = tx
	}
	return l.failed
}

func (l *later) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := l.begin(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return l.Tx.Exec(ctx, sql, args...)
}

func (l *later) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := l.begin(sql); err != nil {
		return nil, err
	}
	return l.Tx.Query(ctx, sql, args...)
}

func (l *later) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := l.begin(sql); err != nil {
		return failed{err}
	}
	return l.Tx.QueryRow(ctx, sql, args...)
}

func (l *later) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := l.begin(""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return l.Tx.SendBatch(ctx, b)
}

func (l *later) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := l.begin(""); err != nil {
		return 0, err
	}
	return l.Tx.CopyFrom(ctx, table, columns, src)
}

func (l *later) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := l.begin(""); err != nil {
		return nil, err
	}
	return l.Tx.Begin(ctx)
}

func (l *later) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := l.begin(""); err != nil {
		return nil, err
	}
	return l.Tx.Prepare(ctx, name, sql)
}

func (l *later) Commit(ctx context.Context) error   { return l.end(ctx, pgx.Tx.Commit) }
func (l *later) Rollback(ctx context.Context) error { return l.end(ctx, pgx.Tx.Rollback) }

// end ends the transaction, of which nothing has begun if it has no statement.
func (l *later) end(ctx context.Context, by func(pgx.Tx, context.Context) error) error {
	if l.Tx != nil {
		return by(l.Tx, ctx)
	}
	err := l.failed
	l.failed = pgx.ErrTxClosed
	return err
}

// failed is a row that was not read.
type failed struct{ error }

func (f failed) Scan(...any) error { return f.error }
